"""Texts for people: escaping, redaction, suggestions, numbers and times."""
