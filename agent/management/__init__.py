"""The RabbitMQ HTTP API, read only: asks for the columns it needs and answers plain data."""
