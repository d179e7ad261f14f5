"""How agents of one group share links: slots, fair shares, and what replicas say to each other.

Why: docs/decisions/0049-leases-in-queues.md
"""
