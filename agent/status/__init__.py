"""What every link is, told to whoever asks: one board, and what only reads it."""
