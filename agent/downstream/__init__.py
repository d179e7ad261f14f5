"""What the cluster beside the agent says: reading it, and following its definitions, bindings and events."""
