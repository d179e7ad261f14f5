"""Decisions about a standby: what it may drop of its copies of a source's queues."""
