"""Exported lines: finding new files, reading them, and keeping data between runs."""
