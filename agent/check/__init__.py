"""`check`: looks at every broker that a configuration names, and changes nothing there."""
