"""Takes messages from the head of a queue: exactly so many, held until they are acknowledged, in their order.

More are never asked for, so none that is to stay is delivered, which a quorum queue would count.
"""

from __future__ import annotations

import asyncio
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.queue_browser import count_consumers, count_ready
from agent.amqp.rpc import refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.amqp.wire.properties import encode
from agent.core.rules.names import AGENT_PREFIX

PORTION: Final = 500
LARGEST_TOGETHER: Final = 64 * 1024 * 1024
"""Bytes of bodies after which no further portion is taken: the broker keeps them in memory."""
COMES_WITHIN: Final = 10.0
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
        try:
            return await count_consumers(self._channel, self._queue) <= ours
        except ChannelClosedError as error:
            raise refusal(self._connection, f"looking for queue {self._queue!r}", error) from error

    async def hold(self, count: int) -> None:
        """Hold so many messages, or fewer where fewer come. Raises BrokerError."""
        try:
            wanted = len(self._tags) + min(count, await count_ready(self._channel, self._queue))
            number = 0
            while (more := min(PORTION, wanted - len(self._tags))) > 0 and self._bytes < LARGEST_TOGETHER:
                number += 1
                if not await self._hold_portion(more, f"{AGENT_PREFIX}taking {number}"):
                    return
        except ChannelClosedError as error:
            raise refusal(self._connection, f"taking from queue {self._queue!r}", error) from error

    async def _hold_portion(self, count: int, tag: str) -> bool:
        """A consumer of its own for each, which ends before anything is acknowledged."""
        before = len(self._tags)
        wanted = before + count
        await self._channel.ask(methods.BASIC_QOS, methods.BASIC_QOS_OK, prefetch_count=count)
        consumed = {"queue": self._queue, "consumer_tag": tag}
        await self._channel.ask(methods.BASIC_CONSUME, methods.BASIC_CONSUME_OK, **consumed)
        try:
            while len(self._tags) < wanted and not self._channel.closed.done():
                self._arrived.clear()
                async with asyncio.timeout(COMES_WITHIN):
                    await self._arrived.wait()
        except TimeoutError:
            pass  # another consumer has taken them
        await self._channel.ask(methods.BASIC_CANCEL, methods.BASIC_CANCEL_OK, consumer_tag=tag)
        if len(self._tags) > before:
            if not self._last_tags:
                self._counts_ours = bool(await count_consumers(self._channel, self._queue))
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
