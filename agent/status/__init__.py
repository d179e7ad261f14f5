"""The state of every link: one board, and the modules that only read it."""
