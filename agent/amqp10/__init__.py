"""AMQP 1.0 as bytes and back: types, frames, performatives, and the sections of messages. No I/O here."""
