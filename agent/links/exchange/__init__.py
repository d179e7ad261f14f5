"""Exchange federation: the objects that a link keeps upstream, its messages and its upkeep."""
