"""The agent's HTTP server: access, limits and routes."""
