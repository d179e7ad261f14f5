"""The links that should exist, and what each needs on the brokers: patterns, policies, names, hops, bindings."""
