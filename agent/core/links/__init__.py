"""What a link may do and when: its lifecycle, confirms, prefetch, lag and retries."""
