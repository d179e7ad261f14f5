"""federation-agent: RabbitMQ federation and shovels from outside the broker."""
