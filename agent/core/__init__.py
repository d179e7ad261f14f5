"""The agent's decisions. No asyncio, no I/O, no clock, no randomness: callers pass these in."""
