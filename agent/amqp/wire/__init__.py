"""The data path: AMQP 0-9-1 frames read, spliced and written without making objects of messages. No aio-pika here."""
