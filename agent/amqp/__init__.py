"""AMQP 0-9-1 connections: requests to a broker, and its events."""
