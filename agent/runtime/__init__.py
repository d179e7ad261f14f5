"""Puts the edges together: reads the downstream, looks at the upstreams, hands both to the core."""
