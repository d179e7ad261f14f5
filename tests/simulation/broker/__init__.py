"""A model of RabbitMQ: what clients can observe of it over AMQP 0-9-1, and no more."""
