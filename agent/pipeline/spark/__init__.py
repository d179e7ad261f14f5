"""Starts and controls Spark; knows nothing about links."""
