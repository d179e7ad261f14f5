"""The RabbitMQ HTTP API, but for one thing read only: asks for the columns it needs and answers plain data."""
