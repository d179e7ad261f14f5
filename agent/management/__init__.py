"""The RabbitMQ HTTP API, read only but for finished shovels: requests the columns it needs and returns plain data."""
