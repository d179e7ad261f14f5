"""Turns what operators write into the core's model; every error keeps its location (file, line, column)."""
