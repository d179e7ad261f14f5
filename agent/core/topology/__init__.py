"""The ways of messages in a federation of several clusters, decided from definitions alone."""
