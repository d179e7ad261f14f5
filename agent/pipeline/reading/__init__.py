"""Exported lines: which files are new, what is read from them, and what is kept between runs."""
