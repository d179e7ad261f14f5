"""What a broker tells by itself, where its event exchange is enabled; a hint to look, never the truth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import AMQPChannelError
from pamqp import commands

from agent.amqp.connect import Connection
from agent.amqp.failures import NOT_FOUND, reply
from agent.core.events import EVENT_EXCHANGE, BrokerEvent
from agent.errors import TransientError

DEFINITION_EVENTS = (
    "parameter.*",
    "policy.*",
    "exchange.*",
    "binding.*",
    "queue.created",
    "queue.deleted",
    "vhost.created",
    "vhost.deleted",
)
CONSUMER_EVENTS = ("consumer.*",)
# A storm waits in the broker, and of a greater one the oldest events go: polling finds what they told.
_PREFETCH = 500
_MAX_LENGTH = 20_000


@dataclass(frozen=True, slots=True)
class NoEvents:
    """This broker tells nothing, at least not to us: poll it more often. `reason` is for the operator."""

    reason: str


class Events:
    """Events as they come, subscriptions to events apart; ends with a BrokerError when the connection is lost."""

    def __init__(self, connection: Connection, channel: AbstractChannel) -> None:
        self._connection = connection
        self._channel = channel
        self._arrived: asyncio.Queue[DeliveredMessage | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if not self._channel.is_closed:
            async with self._connection.telling():
                await self._channel.close()

    async def __aiter__(self) -> AsyncIterator[BrokerEvent]:
        while (message := await self._arrived.get()) is not None:
            event = _read(message)
            if event.fields.get("source_name") != EVENT_EXCHANGE:
                yield event
            if self._arrived.empty() and message.delivery_tag is not None and not self._channel.is_closed:
                async with self._connection.telling():
                    await self._channel.basic_ack(message.delivery_tag, multiple=True)
        raise await self._ended()

    async def consume(self, keys: Iterable[str]) -> None:
        """Declares a queue that goes with the channel, binds it and listens."""
        await self._channel.basic_qos(prefetch_count=_PREFETCH)
        declared = await self._channel.queue_declare(
            exclusive=True, auto_delete=True, arguments={"x-max-length": _MAX_LENGTH}
        )
        queue = declared.queue or ""
        for key in keys:
            await self._channel.queue_bind(queue, EVENT_EXCHANGE, routing_key=key)
        await self._channel.basic_consume(queue, self._take, exclusive=True)
        self._channel.on_consumer_cancel_callbacks.add(self._cancelled)
        self._channel.closing.add_done_callback(lambda _: self._arrived.put_nowait(None))

    async def _take(self, message: DeliveredMessage) -> None:
        self._arrived.put_nowait(message)

    def _cancelled(self, _: commands.Basic.Cancel) -> None:
        self._arrived.put_nowait(None)

    async def _ended(self) -> Exception:
        where = self._connection.where
        if self._connection.raw.is_opened:
            return TransientError(f"{where}: the broker ended the subscription to {EVENT_EXCHANGE}")
        return await self._connection.wait_closed() or TransientError(f"{where}: the agent closed the connection")


def _read(message: DeliveredMessage) -> BrokerEvent:
    """A parameter's value is left out: it holds URIs with their passwords, and Erlang terms besides."""
    headers = message.header.properties.headers or {}
    return BrokerEvent(message.routing_key or "", {key: value for key, value in headers.items() if key != "value"})


async def subscribe(connection: Connection, keys: Iterable[str] = DEFINITION_EVENTS) -> Events | NoEvents:
    """Listens to the events of the whole cluster; the connection must be to the vhost of the event exchange, `/`."""
    events = Events(connection, await connection.channel())
    try:
        async with connection.telling():
            await events.consume(keys)
    except AMQPChannelError as error:
        code, text = reply(error)
        if code == NOT_FOUND:
            return NoEvents(
                f"{connection.where}: no {EVENT_EXCHANGE} in vhost {connection.vhost!r}: "
                "enable rabbitmq_event_exchange, and changes are seen at once"
            )
        return NoEvents(f"{connection.where}: {EVENT_EXCHANGE} can't be read ({code}): {text}")
    return events
