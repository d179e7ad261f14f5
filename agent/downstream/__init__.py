"""Reads the cluster beside the agent, and follows its definitions, bindings and events."""
