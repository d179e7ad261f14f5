"""Slots, shares and messages of replicas."""
