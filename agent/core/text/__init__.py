"""Texts that people read: what is printable, what is redacted, what was meant, what was said before."""
