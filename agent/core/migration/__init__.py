"""Definitions of one cluster and what another makes of them: values in, actions and objections out."""
