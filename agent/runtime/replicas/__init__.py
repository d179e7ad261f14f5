"""Shares links among the agents of a group: leases at the broker, and messages between the agents."""
