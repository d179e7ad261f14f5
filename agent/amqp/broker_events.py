"""The events of a broker, if its event exchange is enabled; they are hints to read again, never the source of truth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from agent.amqp.connect import Connection
from agent.amqp.failures import NOT_FOUND
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.core import fields
from agent.errors import BrokerError, TransientError

EVENT_EXCHANGE = "amq.rabbitmq.event"
DEFINITION_EVENTS = (
    "parameter.*",
    "policy.*",
    "exchange.*",
    "queue.created",
    "queue.deleted",
    "vhost.created",
    "vhost.deleted",
)
# Separate from the others: very many of them delay nothing else.
BINDING_EVENTS = ("binding.*",)
# Many events wait in the broker, and of too many the oldest are dropped: polling finds their changes.
_PREFETCH = 500
_MAX_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """`name` is the routing key (`policy.set`); `fields` are the event's headers, tables as dicts."""

    name: str
    fields: Mapping[str, Any]

    @property
    def vhost(self) -> str | None:
        value = self.fields.get("vhost")
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class NoEvents:
    """The agent gets no events from this broker: poll it more often. `reason` is for the operator."""

    reason: str


class EventReader:
    """An iterator of events; raises BrokerError when the subscription or the connection ends."""

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self._connection = connection
        self._channel = channel
        self._arrived: asyncio.Queue[Message | None] = asyncio.Queue()
        self._cancelled = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        with suppress(BrokerError):  # it is gone then; and an error here would hide the cancellation of a task
            await self._channel.close()

    async def __aiter__(self) -> AsyncIterator[BrokerEvent]:
        while (message := await self._arrived.get()) is not None:
            event = _read(message)
            if event.fields.get("source_name") != EVENT_EXCHANGE:
                yield event
            if self._arrived.empty() and not self._channel.closed.done():
                self._channel.send(methods.BASIC_ACK, delivery_tag=message.call["delivery_tag"], multiple=True)
        raise self._ended()

    async def consume(self, keys: Iterable[str]) -> None:
        """Declare a queue that is deleted with the channel, bind it and consume from it."""
        channel = self._channel
        channel.on_message = self._arrived.put_nowait
        channel.on_cancel = self._cancel
        channel.closed.add_done_callback(lambda _: self._arrived.put_nowait(None))
        channel.ask(methods.BASIC_QOS, prefetch_count=_PREFETCH)
        limit = (("x-max-length", fields.long(_MAX_LENGTH)),)
        declared = await channel.ask(methods.QUEUE_DECLARE, exclusive=True, auto_delete=True, arguments=limit)
        queue = declared["queue"]
        for key in keys:
            channel.ask(methods.QUEUE_BIND, queue=queue, exchange=EVENT_EXCHANGE, routing_key=key)
        await channel.ask(methods.BASIC_CONSUME, queue=queue, exclusive=True)

    def _cancel(self, _: str) -> None:
        self._cancelled = True
        self._arrived.put_nowait(None)

    def _ended(self) -> BrokerError:
        if self._cancelled:
            what = f"the broker ended the subscription to {EVENT_EXCHANGE}"
            return TransientError(what, where=self._connection.where)
        return self._channel.closed.result()


def _read(message: Message) -> BrokerEvent:
    """Read an event without a parameter's value: that contains URIs with their passwords, and Erlang terms."""
    table = fields.table_to_json(message.properties.headers)
    return BrokerEvent(message.call["routing_key"], {key: value for key, value in table.items() if key != "value"})


async def subscribe(connection: Connection, keys: Iterable[str]) -> EventReader | NoEvents:
    """Subscribe to the events of the whole cluster; return NoEvents if the broker refuses. The connection must be to
    the vhost of the event exchange, `/`."""
    events = EventReader(connection, await connection.channel())
    try:
        await events.consume(keys)
    except ChannelClosedError as error:
        if error.code == NOT_FOUND:
            return NoEvents(
                f"{connection.where}: no {EVENT_EXCHANGE} in vhost {connection.vhost!r}: enable "
                "rabbitmq_event_exchange to notice changes at once"
            )
        return NoEvents(f"{connection.where}: {EVENT_EXCHANGE} can't be read ({error.code}): {error.what}")
    return events
