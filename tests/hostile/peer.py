"""A broker that misbehaves: a server of AMQP 0-9-1 that does what a row of `misbehaviours` makes it do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call, Method
from agent.core import fields
from tests.lab.waiting import DEADLINE

FRAME_MAX: Final = 131_072
AT_ONCE: Final = 5_000  # frames of a flood
PROPERTIES: Final = (
    ("product", fields.text("RabbitMQ")),
    ("version", fields.text("3.13.7")),
    ("cluster_name", fields.text("hostile")),
)

Behaviour: TypeAlias = Callable[["Peer"], Awaitable[None]]
Answer: TypeAlias = Callable[["Peer", int, Call], Awaitable[None]]


class Peer:
    """One connection that the agent opened; a behaviour speaks through it."""

    def __init__(self, broker: HostileBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.broker = broker
        self.writer = writer
        self.consumers: dict[int, str] = {}  # by channel
        self.reader = reader
        self._missing = 0  # bytes of the body that comes
        self._body = b""
        self._confirmed: dict[int, int] = {}  # by channel

    async def read(self) -> tuple[int, int, bytes]:
        """The next frame: kind, channel, payload."""
        kind, channel, size = frames.PREFIX.unpack(await self.reader.readexactly(frames.PREFIX.size))
        payload = await self.reader.readexactly(size + 1)
        return kind, channel, payload[:-1]

    async def expect(self, method: Method) -> Call:
        while True:
            kind, _, payload = await self.read()
            if kind == frames.METHOD and (call := methods.decode(payload)).method is method:
                return call

    async def say(self, channel: int, method: Method, **values: Any) -> None:
        await self.send(frames.frame(frames.METHOD, channel, method.encode(**values)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def flood(self, data: bytes) -> None:
        """The same again and again."""
        self.misbehaves()
        while True:
            await self.send(data * AT_ONCE)

    def misbehaves(self) -> None:
        self.broker.misbehaves()

    async def greet(self, properties: fields.Table = PROPERTIES) -> None:
        await self.reader.readexactly(len(frames.PROTOCOL_HEADER))
        await self.say(0, methods.CONNECTION_START, minor=9, properties=properties, mechanisms="PLAIN", locales="en_US")
        await self.expect(methods.CONNECTION_START_OK)

    async def log_in(self, *, frame_max: int = FRAME_MAX, channel_max: int = 2047, heartbeat: int = 10) -> None:
        """Greets and lets the agent in, as a decent broker does."""
        await self.greet()
        await self.say(0, methods.CONNECTION_TUNE, channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        await self.expect(methods.CONNECTION_OPEN)
        await self.say(0, methods.CONNECTION_OPEN_OK)

    async def hang_up(self) -> None:
        """Ends its side, and reads what still comes: closing with bytes unread would be a reset instead."""
        self.misbehaves()
        self.writer.write_eof()
        while await self.reader.read(FRAME_MAX):
            pass

    async def serve(self, instead: Mapping[Method, Answer] | None = None, *, confirms: bool = False) -> None:
        """Answers whatever is asked as if it were done; `instead` answers some questions otherwise."""
        while True:
            kind, channel, payload = await self.read()
            if kind == frames.HEARTBEAT:
                await self.send(frames.frame(frames.HEARTBEAT, 0, b""))
                continue
            if kind != frames.METHOD:
                if confirms:
                    await self._confirm(channel, kind, payload)
                continue
            call = methods.decode(payload)
            if instead and call.method in instead:
                self.misbehaves()
                await instead[call.method](self, channel, call)
            else:
                await self.answer(channel, call)

    async def _confirm(self, channel: int, kind: int, payload: bytes) -> None:
        """What is published is kept by the broker as soon as it is whole."""
        if kind == frames.HEADER:
            _, _, self._missing = frames.BASIC_HEADER.unpack_from(payload)
            self._body = b""
        else:
            self._body += payload
            self._missing -= len(payload)
        if not self._missing:
            self.broker.published.append(self._body)
            self._confirmed[channel] = number = self._confirmed.get(channel, 0) + 1
            await self.say(channel, methods.BASIC_ACK, delivery_tag=number, multiple=False)

    async def answer(self, channel: int, call: Call) -> None:
        match call.method:
            case methods.QUEUE_DECLARE:
                await self.say(channel, methods.QUEUE_DECLARE_OK, queue=call["queue"], messages=0, consumers=0)
            case methods.EXCHANGE_DECLARE if call["passive"] and call["exchange"].startswith("federation: "):
                text = f"NOT_FOUND - no exchange '{call['exchange']}'"[:255]
                await self.say(channel, methods.CHANNEL_CLOSE, code=404, text=text)
            case methods.BASIC_CONSUME:
                self.consumers[channel] = call["consumer_tag"]
                await self.say(channel, methods.BASIC_CONSUME_OK, consumer_tag=call["consumer_tag"])
            case method if (answer := _ANSWERS.get(method)) is not None:
                await self.say(channel, answer)

    async def deliver(
        self, channel: int, tag: int, *, key: str = "k", properties: bytes = b"\0\0", body: bytes = b"x"
    ) -> None:
        delivery = methods.BASIC_DELIVER.encode(
            consumer_tag=self.consumers[channel], delivery_tag=tag, exchange="x", routing_key=key
        )
        await self.send(
            frames.frame(frames.METHOD, channel, delivery) + frames.content(channel, properties, body, FRAME_MAX)
        )


_ANSWERS: Final[Mapping[Method, Method]] = {
    methods.CHANNEL_OPEN: methods.CHANNEL_OPEN_OK,
    methods.CHANNEL_CLOSE: methods.CHANNEL_CLOSE_OK,
    methods.CONNECTION_CLOSE: methods.CONNECTION_CLOSE_OK,
    methods.EXCHANGE_DECLARE: methods.EXCHANGE_DECLARE_OK,
    methods.EXCHANGE_DELETE: methods.EXCHANGE_DELETE_OK,
    methods.EXCHANGE_BIND: methods.EXCHANGE_BIND_OK,
    methods.EXCHANGE_UNBIND: methods.EXCHANGE_UNBIND_OK,
    methods.QUEUE_BIND: methods.QUEUE_BIND_OK,
    methods.QUEUE_DELETE: methods.QUEUE_DELETE_OK,
    methods.BASIC_QOS: methods.BASIC_QOS_OK,
    methods.BASIC_CANCEL: methods.BASIC_CANCEL_OK,
    methods.CONFIRM_SELECT: methods.CONFIRM_SELECT_OK,
}


class HostileBroker:
    """Listens in a thread of its own, so that a flood doesn't keep the test from looking."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.port = 0
        self.connections = 0  # how many were accepted
        self._since = time.monotonic()
        self.published: list[bytes] = []  # bodies
        self._misbehaved = threading.Event()  # does, or did
        self._behaviour = behaviour
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE)
        self._loop.close()

    @property
    def uri(self) -> str:
        return f"amqp://hostile:s3cret@127.0.0.1:{self.port}"

    def misbehaves(self) -> None:
        self._misbehaved.set()

    @property
    def is_asked_too_often(self) -> bool:
        """More than three connections in an attempt, and two attempts a second."""
        return self.connections > 50 + 6 * (time.monotonic() - self._since)

    def wait(self) -> None:
        """Until it misbehaves."""
        assert self._misbehaved.wait(DEADLINE), "the agent never came"

    async def _run(self) -> None:
        serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            serving[asyncio.create_task(self._serve(reader, writer))] = writer

        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**20)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        # Closed only when nobody is being accepted: one that comes to a closed server is dropped without a close.
        self._loop.remove_reader(server.sockets[0].fileno())
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in serving:
                task.cancel()
            await asyncio.wait(others, timeout=0.1)
        server.close()
        for writer in serving.values():  # also of those tasks that were cancelled before their first step
            writer.transport.abort()
        await asyncio.sleep(0)  # whose transports then close their sockets

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._behaviour(Peer(self, reader, writer))
        finally:
            writer.transport.abort()
