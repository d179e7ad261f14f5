"""Decisions about a running link: its lifecycle, confirms, prefetch, lag and retries."""
