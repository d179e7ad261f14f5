"""The messages of a queue, one by one: looked at, and back in their place afterwards; or taken from its head.

Of those that are taken exactly so many come, and are held until they are acknowledged, in their order. More are never
asked for, so none that is to stay is delivered, which a quorum queue would count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.failures import NOT_FOUND
from agent.amqp.rpc import look_at_queue, refusal, refused_while
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.amqp.wire.properties import encode
from agent.core.rules.names import AGENT_PREFIX
from agent.errors import TransientError

LARGEST_TOGETHER: Final = 64 * 1024 * 1024  # bytes of bodies, and of properties, that wait to be looked at
MOST: Final = 65_535  # the largest prefetch
COMES_WITHIN: Final = 10.0
CONSUMER: Final = "federation-agent: looking"


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message in the queue. `body` is None if it isn't wanted, or if too many are held already."""

    tag: int
    properties: bytes
    size: int
    body: bytes | None


class QueueBrowser:
    """Browses the messages that were in one queue when it was opened. `has_more`: there are more than can be held
    together, so some of them can't be browsed; they are still in their place."""

    def __init__(
        self,
        connection: Connection,
        channel: Channel,
        queue: str,
        *,
        wants: Callable[[bytes], bool],
        room: int,
        most: int = MOST,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._wants = wants
        self._room = room
        self._most = most
        self.has_more = False
        self._is_cut = False
        self._arrived: asyncio.Queue[BrowsedMessage | None] = asyncio.Queue()
        self._bytes = 0
        self._properties_bytes = 0
        self._count = 0
        channel.on_message = self._take

    async def begin(self) -> None:
        """Start to consume the messages that are ready; a missing queue has none."""
        channel = self._channel
        try:
            ready = (await look_at_queue(channel, self._queue))["messages"]
            self._count, self.has_more = min(ready, self._most), ready > self._most
            if self._count:
                await channel.ask(methods.BASIC_QOS, prefetch_count=self._count)
                await channel.ask(methods.BASIC_CONSUME, queue=self._queue, consumer_tag=CONSUMER)
        except ChannelClosedError as error:
            if error.code != NOT_FOUND:
                raise refusal(self._connection, f"looking into queue {self._queue!r}", error) from error

    async def __aiter__(self) -> AsyncIterator[BrowsedMessage]:
        """Yield the messages; ends early if another consumer takes some of them."""
        for _ in range(self._count):
            try:
                async with asyncio.timeout(COMES_WITHIN):
                    held = await self._arrived.get()
            except TimeoutError:
                if self._channel.closed.done():
                    raise TransientError(self._channel.closed.result().what, where=self._connection.where) from None
                return
            if held is None:
                return
            self._bytes -= 0 if held.body is None else held.size
            self._properties_bytes -= len(held.properties)
            yield held

    async def has_rest(self) -> bool:
        """True if some messages aren't held by anybody: another connection may browse what this one can't hold."""
        return self._is_cut or (self.has_more and (await look_at_queue(self._channel, self._queue))["messages"] > 0)

    def acknowledge(self, tag: int) -> None:
        self._channel.send(methods.BASIC_ACK, delivery_tag=tag, multiple=False)

    def _take(self, message: Message) -> None:
        if self._is_cut:
            return
        properties, size = message.properties.write(), len(message.body)
        if self._properties_bytes + len(properties) > self._room:
            self._is_cut = self.has_more = True  # for all that follow, as none may pass another
            self._arrived.put_nowait(None)
            return
        has_room = self._bytes + size <= self._room or not self._bytes
        body = message.body if has_room and self._wants(properties) else None
        self._bytes += 0 if body is None else size
        self._properties_bytes += len(properties)
        self._arrived.put_nowait(BrowsedMessage(message.call["delivery_tag"], properties, size, body))


@asynccontextmanager
async def browse(
    connection: Connection,
    queue: str,
    *,
    wants: Callable[[bytes], bool],
    room: int = LARGEST_TOGETHER,
    most: int = MOST,
) -> AsyncIterator[QueueBrowser]:
    """Open a browser of a queue. `wants` decides by a message's properties (with their flags) if its body is kept.
    `most` is the most messages that are held, `room` the most bytes of their bodies, and of their properties."""
    channel = connection.wire.begin_channel()
    try:
        held = QueueBrowser(connection, channel, queue, wants=wants, room=room, most=most)
        await held.begin()
        yield held
    finally:
        await channel.close()


PORTION: Final = 500
MOST_HELD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of bodies after which no further portion is taken: the broker keeps them in memory."""
TAKEN_WITHIN: Final = 10.0
PRIORITY, NO_PRIORITY = encode("priority", 0)


class QueueHead:
    """Messages at the head of one queue, on a channel of their own."""

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self._queue = queue
        self._channel: Channel = connection.wire.begin_channel()
        self._channel.on_message = self._take
        self._tags: list[int] = []
        self._last_tags: list[int] = []  # of each portion
        self._counts_ours = False  # as quorum queues count a consumer that has ended while its messages are held
        self._bytes = 0
        self.has_priorities = False
        """True if a message had one: then others may have come before older ones."""
        self._arrived = asyncio.Event()

    @property
    def held(self) -> int:
        """The number of messages; none once the channel is lost, as they are back in the queue."""
        return 0 if self.is_lost else len(self._tags)

    @property
    def is_lost(self) -> bool:
        return self._channel.closed.done()

    async def is_alone(self) -> bool:
        """True if nobody else consumes from the queue. Raises BrokerError."""
        ours = sum(last >= self._tags[0] for last in self._last_tags) if self._counts_ours and self._tags else 0
        with refused_while(self._connection, f"looking for queue {self._queue!r}"):
            return bool((await look_at_queue(self._channel, self._queue))["consumers"] <= ours)

    async def hold(self, count: int) -> None:
        """Hold so many messages, or fewer where fewer come. Raises BrokerError."""
        with refused_while(self._connection, f"taking from queue {self._queue!r}"):
            wanted = len(self._tags) + min(count, (await look_at_queue(self._channel, self._queue))["messages"])
            number = 0
            while (more := min(PORTION, wanted - len(self._tags))) > 0 and self._bytes < MOST_HELD_BYTES:
                number += 1
                if not await self._hold_portion(more, f"{AGENT_PREFIX}taking {number}"):
                    return

    async def _hold_portion(self, count: int, tag: str) -> bool:
        """A consumer of its own for each, which ends before anything is acknowledged."""
        before = len(self._tags)
        wanted = before + count
        await self._channel.ask(methods.BASIC_QOS, prefetch_count=count)
        await self._channel.ask(methods.BASIC_CONSUME, queue=self._queue, consumer_tag=tag)
        try:
            while len(self._tags) < wanted and not self._channel.closed.done():
                self._arrived.clear()
                async with asyncio.timeout(TAKEN_WITHIN):
                    await self._arrived.wait()
        except TimeoutError:
            pass  # another consumer has taken them
        await self._channel.ask(methods.BASIC_CANCEL, consumer_tag=tag)
        if len(self._tags) > before:
            if not self._last_tags:
                self._counts_ours = bool((await look_at_queue(self._channel, self._queue))["consumers"])
            self._last_tags.append(self._tags[-1])
        return len(self._tags) >= wanted

    def acknowledge(self, count: int) -> None:
        """The first ones: they leave the queue, as they would if they were consumed."""
        if count:
            self._channel.send(methods.BASIC_ACK, delivery_tag=self._tags[count - 1], multiple=True)
            del self._tags[:count]

    async def close(self) -> None:
        """Close the channel: what is still held goes back to its place."""
        await self._channel.close()

    def _take(self, message: Message) -> None:
        self._tags.append(message.call["delivery_tag"])
        self._bytes += len(message.body)
        self.has_priorities |= message.properties.get(PRIORITY) not in {None, NO_PRIORITY}
        self._arrived.set()
