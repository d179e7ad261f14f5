"""The RabbitMQ HTTP API, read only: requests the columns it needs and returns plain data."""
