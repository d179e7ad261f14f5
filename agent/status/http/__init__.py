"""The agent's HTTP server: who may ask, how much, and what is answered."""
