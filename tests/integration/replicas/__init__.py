"""Several agents of one group, which share links."""
