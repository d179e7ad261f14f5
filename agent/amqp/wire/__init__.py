"""AMQP 0-9-1: frames, methods, tables, channels and connections, without aio-pika."""
