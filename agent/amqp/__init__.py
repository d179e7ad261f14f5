"""AMQP 0-9-1 connections: what is asked of a broker, and what it tells by itself."""
