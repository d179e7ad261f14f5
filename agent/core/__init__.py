"""What the agent decides. No asyncio, no I/O, no clock, no randomness: those are passed in."""
