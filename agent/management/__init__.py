"""The RabbitMQ HTTP API: requests the columns it needs and returns plain data. It writes only for finished shovels, and
for `migrate` (`declaring`)."""
