"""Parses text into plain data with the location of every key and value, and reports its errors."""
