"""Which links should exist, and what each asks of the brokers: patterns, policies, names, hops, bindings."""
