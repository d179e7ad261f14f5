"""Real brokers, clusters, other releases and a hostile network, for tests; docs/testing.md tells how to use them."""
