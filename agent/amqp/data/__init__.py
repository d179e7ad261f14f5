"""The data path: deliveries in, publishes out, confirms in, acknowledgements out. Knows no kind of link."""
