"""The live page at `/`: static files that a browser runs as they are, and what serves them. No build, no network."""
