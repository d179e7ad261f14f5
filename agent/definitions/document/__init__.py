"""Text to plain data that knows the place of every key and value, and what is wrong with it."""
