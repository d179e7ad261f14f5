"""Causes of trouble across links, in an order that helps, and advice."""
