"""How Spark is started and driven; knows nothing of links."""
