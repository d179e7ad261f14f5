"""What a broker reports of itself on `amq.rabbitmq.event`, where that is enabled."""

from __future__ import annotations

from typing import Final

from agent.amqp.wire.tables import encode_table
from agent.core.fields import Field, Table, array, boolean, long, text
from tests.simulation.broker.exchanges import Binding, Exchange
from tests.simulation.broker.queues import Consumer, Queue

VHOST: Final = ("vhost", text("/"))
_HEADERS_AND_PERSISTENT: Final = b"\x30\x00"
_PERSISTENT: Final = b"\x02"

Event = tuple[str, Table]
"""Its routing key and its headers."""


def properties_of(headers: Table) -> bytes:
    return _HEADERS_AND_PERSISTENT + encode_table(headers) + _PERSISTENT


def consumer_changed(what: str, consumer: Consumer) -> Event:
    names = (VHOST, ("queue", text(consumer.queue.name)), ("consumer_tag", text(consumer.tag)))
    channel = (("channel", text(consumer.channel.pid)),)
    arguments = () if what == "deleted" else (("arguments", _as_erlang(consumer.arguments)),)
    return f"consumer.{what}", (*names, *channel, *arguments)


def channel_closed(pid: str, consumers: int | None) -> Event:
    count = () if consumers is None else (("consumer_count", long(consumers)),)
    return "channel.closed", (("pid", text(pid)), *count)


def queue_created(queue: Queue) -> Event:
    flags = (("durable", boolean(queue.durable)), ("auto_delete", boolean(queue.auto_delete)))
    owner = ("exclusive", boolean(queue.owner is not None))
    return "queue.created", (VHOST, ("name", text(queue.name)), *flags, owner)


def queue_deleted(queue: Queue) -> Event:
    return "queue.deleted", (VHOST, ("name", text(queue.name)))


def exchange_created(exchange: Exchange) -> Event:
    return "exchange.created", (VHOST, ("name", text(exchange.name)), ("type", text(exchange.type)))


def exchange_deleted(name: str) -> Event:
    return "exchange.deleted", (VHOST, ("name", text(name)))


def binding_changed(what: str, binding: Binding) -> Event:
    kind = "queue" if binding.to_queue else "exchange"
    ends = (
        ("source_name", text(binding.source)),
        ("destination_name", text(binding.destination)),
        ("destination_kind", text(kind)),
    )
    key = (("routing_key", text(binding.key)), ("arguments", _as_erlang(binding.arguments)))
    return f"binding.{what}", (VHOST, *ends, *key)


def _as_erlang(arguments: Table) -> Field:
    """Only numbers are told apart from text, which is all that anybody looks for."""
    return array(*(text(f'{{<<"{name}">>,{_kind(field)},{field.value}}}') for name, field in arguments))


def _kind(field: Field) -> str:
    return "long" if isinstance(field.value, int) and not isinstance(field.value, bool) else "longstr"
