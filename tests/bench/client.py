"""A client that costs next to nothing: prebuilt publishes in batches, deliveries counted and not looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from agent.amqp.connect import Connection, connect
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel
from agent.core.uri import parse

NAME: Final = "federation bench"
BATCH: Final = 50
_ACK: Final = (60 << 16 | 80).to_bytes(4, "big")
_DELIVER: Final = (60 << 16 | 60).to_bytes(4, "big")
PERSISTENT: Final = b"\x10\x00\x02"


async def opened(uri: str) -> Connection:
    return await connect(parse(uri), where="bench", name=NAME)


class Progress:
    """A count that can be waited for."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0.0
        self.last = 0.0
        self._moved = asyncio.Event()

    def add(self, number: int) -> None:
        if number:
            self.last = time.monotonic()
            self.first = self.first or self.last
            self.count += number
            self._moved.set()

    async def reach(self, number: int) -> None:
        while self.count < number:
            self._moved.clear()
            await self._moved.wait()


class Confirmed(Progress):
    """Takes the frames of a publisher's channel: how many messages the broker has confirmed."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._above: set[int] = set()
        self._below = 0

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        before = self._below + len(self._above)
        while end - at >= frames.OVERHEAD:
            kind, number, size = frames.PREFIX.unpack_from(buffer, at)
            after = at + frames.OVERHEAD + size
            if number != self._channel.number or after > end:
                break
            if buffer[at + 7 : at + 11] == _ACK:
                self._confirmed(int.from_bytes(buffer[at + 11 : at + 19], "big"), multiple=bool(buffer[at + 19]))
            else:
                self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
            at = after
        self.add(self._below + len(self._above) - before)
        return at

    def _confirmed(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self._below = max(self._below, tag)
            self._above = {above for above in self._above if above > self._below}
        else:
            self._above.add(tag)
        while self._below + 1 in self._above:
            self._below += 1
            self._above.discard(self._below)


class Delivered(Progress):
    """Takes the frames of a consumer's channel: how many messages came."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        came, prefix, mine = 0, frames.PREFIX.unpack_from, self._channel.number
        while end - at >= frames.OVERHEAD:
            kind, number, size = prefix(buffer, at)
            after = at + frames.OVERHEAD + size
            if number != mine or after > end:
                break
            if kind == frames.HEADER:
                came += 1
            elif kind == frames.METHOD and buffer[at + 7 : at + 11] != _DELIVER:
                self._channel.received(kind, bytes(buffer[at + 7 : after - 1]))
            at = after
        self.add(came)
        return at


class Publisher:
    """Publishes one persistent message again and again, at most `window` of them unconfirmed."""

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self._connection = connection
        self._channel = channel
        self._confirmed = Confirmed(channel)
        self._sent = 0
        connection.wire.divert(channel.number, self._confirmed)

    @classmethod
    async def on(cls, connection: Connection) -> Publisher:
        channel = await connection.channel()
        await channel.ask(methods.CONFIRM_SELECT, methods.CONFIRM_SELECT_OK)
        return cls(connection, channel)

    def message(self, exchange: str, key: str, body: bytes) -> bytes:
        method = methods.BASIC_PUBLISH.encode(exchange=exchange, routing_key=key)
        content = frames.content(self._channel.number, PERSISTENT, body, self._connection.wire.frame_max)
        return frames.frame(frames.METHOD, self._channel.number, method) + content

    def send(self, message: bytes, times: int = 1) -> None:
        self._sent += times
        self._connection.wire.write(message * times)

    async def publish(self, message: bytes, *, count: int, window: int) -> None:
        """Until the last one is confirmed."""
        left = count
        while left:
            batch = min(BATCH, window, left)
            await self._confirmed.reach(self._sent + batch - window)
            self.send(message, batch)
            left -= batch
            await asyncio.sleep(0)
        await self._confirmed.reach(self._sent)


async def consume(channel: Channel, queue: str) -> None:
    await channel.ask(methods.BASIC_CONSUME, methods.BASIC_CONSUME_OK, queue=queue, no_ack=True)


async def count_deliveries(connection: Connection, queue: str) -> Delivered:
    channel = await connection.channel()
    delivered = Delivered(channel)
    connection.wire.divert(channel.number, delivered)
    await consume(channel, queue)
    return delivered


def bind(channel: Channel, exchange: str, queue: str, key: str) -> asyncio.Future[methods.Call]:
    return channel.ask(methods.QUEUE_BIND, methods.QUEUE_BIND_OK, exchange=exchange, queue=queue, routing_key=key)


async def furnish(
    uri: str, *, exchanges: Iterable[str] = (), queue: str = "", bindings: Iterable[tuple[str, str]] = ()
) -> None:
    """Durable topic exchanges, a durable queue, and bindings (exchange, key) between them, all asked at once."""
    async with await opened(uri) as connection:
        channel = await connection.channel()
        asked = [
            channel.ask(
                methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, exchange=exchange, type="topic", durable=True
            )
            for exchange in exchanges
        ]
        if queue:
            asked.append(channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, durable=True))
        asked += [bind(channel, exchange, queue, key) for exchange, key in bindings]
        for answer in asked:
            await answer
