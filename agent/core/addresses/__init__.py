"""Addresses and credentials: AMQP URIs, HTTP URLs, secrets, and the expiry of certificates and tokens."""
