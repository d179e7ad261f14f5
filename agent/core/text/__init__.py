"""Texts for people: escaping, redaction, suggestions, and repeated messages."""
