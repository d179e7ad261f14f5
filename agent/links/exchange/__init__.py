"""Exchange federation: what exists upstream for a link, its messages and its upkeep."""
