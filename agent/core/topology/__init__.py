"""Where messages go in a federation of several clusters, decided from definitions alone."""
