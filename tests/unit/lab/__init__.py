"""What the lab itself promises, as far as it needs no broker."""
