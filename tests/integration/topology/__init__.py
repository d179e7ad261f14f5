"""`topology` held against real brokers."""
