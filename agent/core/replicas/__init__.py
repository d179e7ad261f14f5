"""Sharing of links among the agents of a group: slots, fair shares, and the messages between replicas.

Why: docs/decisions/0049-leases-in-queues.md
"""
