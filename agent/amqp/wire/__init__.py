"""AMQP 0-9-1 on the wire: frames, methods, tables, login, channels, and the connection that reads and writes them.

Why: docs/decisions/0001-own-amqp-client.md
"""
