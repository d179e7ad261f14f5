"""Shovels: messages moved from a queue or an exchange to another, on any two brokers."""
