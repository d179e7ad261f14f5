"""Connections that cost next to nothing: publishes made once and sent in batches, deliveries counted by their frames.

pamqp makes and reads the frames, so that no error of the agent's codec can hide in the load. The load itself doesn't go
through aio-pika, whose CPU for each message would be taken from the brokers and the agent, which share the cores.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader, ProtocolHeader

BATCH: Final = 50
CHANNEL: Final = 1  # each connection has one
PERSISTENT: Final = commands.Basic.Properties(delivery_mode=2)
PREFIX: Final = struct.Struct(">BHI")  # kind, channel and size of a frame
OVERHEAD: Final = 8
METHOD, HEADER, BODY = 1, 2, 3
DELIVER: Final = struct.pack(">HH", *divmod(commands.Basic.Deliver.index, 2**16))
ACK: Final = struct.pack(">HH", *divmod(commands.Basic.Ack.index, 2**16))

Took = Callable[[int, bytes], None]


class RefusedError(Exception):
    """The broker answered with something else than what was asked for."""


class Connection(asyncio.Protocol):
    """A connection with one channel. `took` is given deliveries, contents and confirms: a frame's kind and payload."""

    def __init__(self) -> None:
        self.took: Took = lambda _kind, _payload: None
        self.frame_max = 0
        self._rest = b""
        self._answers: asyncio.Queue[Frame] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= OVERHEAD:
            kind, _, size = PREFIX.unpack_from(data, at)
            after = at + OVERHEAD + size
            if after > end:
                break
            payload = data[at + 7 : after - 1]
            if kind == METHOD and payload[:4] not in {DELIVER, ACK}:
                self._answered(data[at:after])
            else:
                self.took(kind, payload)
            at = after
        self._rest = data[at:]

    def _answered(self, data: bytes) -> None:
        answer = pamqp.frame.unmarshal(data)[2]
        assert isinstance(answer, Frame)
        if isinstance(answer, commands.Channel.Close | commands.Connection.Close):
            sys.stderr.write(f"the broker closes: {answer.reply_text}\n")
        self._answers.put_nowait(answer)

    def write(self, data: bytes) -> None:
        assert self._transport
        self._transport.write(data)

    def close(self) -> None:
        assert self._transport
        self._transport.close()

    async def ask(self, *asked: Frame, channel: int = CHANNEL) -> list[Frame]:
        """The answers, in the order of what was asked, all of it at once."""
        self.write(b"".join(pamqp.frame.marshal(each, channel) for each in asked))
        answers = [await self._answers.get() for _ in asked]
        for one, answer in zip(asked, answers, strict=True):
            if answer.name not in one.valid_responses:
                raise RefusedError(f"{one.name} was answered by {dict(answer)}")
        return answers

    async def log_in(self, user: str, password: str, vhost: str) -> None:
        self.write(ProtocolHeader().marshal())
        await self._answers.get()
        login = commands.Connection.StartOk({"connection_name": "federation bench"}, response=f"\0{user}\0{password}")
        self.write(pamqp.frame.marshal(login, 0))
        tune = await self._answers.get()
        assert isinstance(tune, commands.Connection.Tune), f"login refused: {dict(tune)}"
        self.frame_max = tune.frame_max
        limits = commands.Connection.TuneOk(channel_max=tune.channel_max, frame_max=tune.frame_max, heartbeat=0)
        self.write(pamqp.frame.marshal(limits, 0))
        await self.ask(commands.Connection.Open(virtual_host=vhost), channel=0)
        await self.ask(commands.Channel.Open())


async def opened(uri: str) -> Connection:
    at = urlsplit(uri)
    assert at.hostname and at.port
    _, connection = await asyncio.get_running_loop().create_connection(Connection, at.hostname, at.port)
    await connection.log_in(unquote(at.username or ""), unquote(at.password or ""), unquote(at.path[1:]))
    return connection


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
    """How many messages the broker has confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self._above: set[int] = set()
        self._below = 0

    def took(self, kind: int, payload: bytes) -> None:
        assert kind == METHOD
        before = self._below + len(self._above)
        self._confirmed(int.from_bytes(payload[4:12], "big"), multiple=bool(payload[12]))
        self.add(self._below + len(self._above) - before)

    def _confirmed(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self._below = max(self._below, tag)
            self._above = {above for above in self._above if above > self._below}
        else:
            self._above.add(tag)
        while self._below + 1 in self._above:
            self._below += 1
            self._above.discard(self._below)


class Publisher:
    """Publishes one persistent message again and again, at most `window` of them unconfirmed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._confirmed = Confirmed()
        self._sent = 0
        connection.took = self._confirmed.took

    @classmethod
    async def on(cls, connection: Connection) -> Publisher:
        await connection.ask(commands.Confirm.Select())
        return cls(connection)

    def message(self, exchange: str, key: str, body: bytes, headers: dict[str, Any] | None = None) -> bytes:
        """All frames of a message; the last one ends with the body's last byte and one more."""
        most = self._connection.frame_max - OVERHEAD
        properties = commands.Basic.Properties(delivery_mode=2, headers=headers) if headers else PERSISTENT
        frames: list[Frame | ContentHeader | ContentBody] = [
            commands.Basic.Publish(exchange=exchange, routing_key=key),
            ContentHeader(body_size=len(body), properties=properties),
            *(ContentBody(body[at : at + most]) for at in range(0, len(body), most)),
        ]
        return b"".join(pamqp.frame.marshal(frame, CHANNEL) for frame in frames)

    def send(self, message: bytes, times: int = 1) -> None:
        self._sent += times
        self._connection.write(message * times)

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


async def consume(connection: Connection, queue: str, took: Took) -> None:
    connection.took = took
    await connection.ask(commands.Basic.Consume(queue=queue, no_ack=True))


async def count_deliveries(connection: Connection, queue: str) -> Progress:
    delivered = Progress()
    await consume(connection, queue, lambda kind, _: delivered.add(kind == HEADER))
    return delivered


def bound(exchange: str, queue: str, key: str) -> Frame:
    return commands.Queue.Bind(exchange=exchange, queue=queue, routing_key=key)


async def furnish(
    uri: str, *, exchanges: Iterable[str] = (), queue: str = "", bindings: Iterable[tuple[str, str]] = ()
) -> None:
    """Durable topic exchanges, a durable queue, and bindings (exchange, key) between them, all asked at once."""
    connection = await opened(uri)
    await connection.ask(
        *(commands.Exchange.Declare(exchange=name, exchange_type="topic", durable=True) for name in exchanges),
        *([commands.Queue.Declare(queue=queue, durable=True)] if queue else []),
        *(bound(exchange, queue, key) for exchange, key in bindings),
    )
    connection.close()
