"""Messages of AMQP 1.0 as those of 0-9-1 and back, by the table of docs/amqp10-conversion.md. Pure: bytes to bytes.

Why: docs/decisions/0062-amqp10-conversion.md
"""
