"""Addresses and credentials: AMQP URIs, HTTP URLs, secrets, and when certificates and tokens end."""
