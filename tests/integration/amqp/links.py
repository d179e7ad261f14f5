"""A link made by hand between two connections, queue to queue, and what it does to messages.

What it forwards is published and consumed by aio-pika (`tests.lab.user_program`), but for one test: `ExactPublisher`
and `take_exactly` use the agent's codec, because aio-pika can neither send nor show every field tag.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.amqp.connect import Connection
from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.quarantined import Room
from agent.amqp.data.splice import Counts, DeliveryForwarder, Destination, PublishTracker
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, Message
from agent.amqp.wire.properties import USER_ID, Properties
from agent.amqp.wire.tables import encode_table
from agent.core.links.confirms import Confirms
from agent.core.model import AckMode
from agent.core.rules.hops import RECEIVED_FROM, Site, received_entry, with_entry
from agent.links.exchange.received_from import ReceivedFromHeader
from tests.lab.node import Node
from tests.lab.user_program import depth_async
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually_async

HERE, THERE = Site("here", "v"), Site("there", "w")
URI = "amqp://there:5672"


@dataclass
class Link:
    """From a queue upstream (`name`, unless another is told) to fanout `name`, with queue `name` bound to it."""

    name: str
    up: Connection
    down: Connection
    ack_mode: AckMode = AckMode.ON_CONFIRM
    prefetch: int = 1000
    max_hops: int = 1
    largest: int | None = None
    queue: str = ""
    counts: Counts = field(default_factory=Counts)

    async def start(self) -> None:
        self.out, self.into = await self.up.channel(), await self.down.channel()
        await self.into.ask(methods.CONFIRM_SELECT)
        self.target = PublishTracker(
            self.into,
            self.down.wire,
            self.counts,
            ack_mode=self.ack_mode,
            settle=self.up.wire.write_soon,
            held=HeldBuffers(0, Room(0)),
            largest=self.largest,
        )
        stamp = ReceivedFromHeader(
            URI, self.name, upstream=THERE, downstream=HERE, max_hops=self.max_hops, trust_user_id=False
        )  # fmt: skip
        self.up.wire.inbound.divert(
            self.out.number, DeliveryForwarder(self.out, self.target, stamp, Destination(self.name))
        )  # fmt: skip
        self.down.wire.inbound.divert(self.into.number, self.target)
        self.down.wire.fed_by(self.up.wire)
        no_ack, queue = self.ack_mode is AckMode.NO_ACK, self.queue or self.name
        if not no_ack:
            self.out.ask(methods.BASIC_QOS, prefetch_count=self.prefetch)
        await self.out.ask(
            methods.BASIC_CONSUME,
            queue=queue,
            consumer_tag="link",
            no_ack=no_ack,
        )

    async def stop(self) -> None:
        self.down.wire.starved_by(self.up.wire)
        for channel in (self.into, self.out):
            await channel.close()

    async def forwarded(self, count: int, within: float = DEADLINE) -> None:
        await until(lambda: self.counts.forwarded >= count, within, what=f"{count} are forwarded, {self.counts}")


async def until(condition: Callable[[], object], within: float = DEADLINE, *, what: str) -> None:
    """Waits for what happens in this process."""

    async def asked() -> object:
        return condition()

    await eventually_async(asked, within, what=what)


@asynccontextmanager
async def running(link: Link) -> AsyncIterator[Link]:
    await link.start()
    try:
        yield link
    finally:
        await link.stop()


def declare(node: Node, *names: str) -> None:
    """Fanouts, each with a queue of the same name."""
    for name in names:
        node.admin.exchange("/", name, "fanout")
        node.admin.queue("/", name)
        node.admin.bind("/", name, name)


class ExactPublisher:
    """Puts messages, to the byte, into queue `name`, for a link, and into `name copy`, to look at; confirmed."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self._confirms = Confirms()

    @classmethod
    async def at(cls, node: Node, connection: Connection, name: str) -> ExactPublisher:
        declare(node, name)
        node.admin.queue("/", f"{name} copy")
        node.admin.bind("/", name, f"{name} copy")
        channel = await connection.channel()
        await channel.ask(methods.CONFIRM_SELECT)
        publisher = cls(channel, name)
        connection.wire.inbound.divert(channel.number, publisher)
        return publisher

    async def publish(self, *contents: tuple[bytes, bytes]) -> None:
        """(properties, body) each."""
        for properties, body in contents:
            self._channel.publish(self._name, "a key", properties, body)
            self._confirms.published([0])
        await until(lambda: not self._confirms.in_flight or self._channel.closed.done(), what="all are confirmed")
        assert not self._channel.closed.done(), self._channel.closed.result()

    def take(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: ARG002 - one frame at a time will do
        kind, _, size = frames.PREFIX.unpack_from(buffer, at)
        after: int = at + frames.OVERHEAD + size
        payload = bytes(buffer[at + 7 : after - 1])
        call = methods.decode(payload)
        if call.method is methods.BASIC_ACK:
            self._confirms.confirmed(call["delivery_tag"], multiple=call["multiple"])
        else:
            self._channel.received(kind, payload)
        return after


async def take_exactly(channel: Channel, queue: str, count: int, within: float = DEADLINE) -> list[Message]:
    """So many messages out of a queue, with properties to the byte."""
    found: list[Message] = []
    channel.on_message = found.append
    async with asyncio.timeout(within):
        while len(found) < count:
            await channel.ask(methods.BASIC_GET, queue=queue, no_ack=True)
            await asyncio.sleep(0)
    return found


def stamped(original: Properties, exchange: str, *, sorts: bool = False) -> Properties:
    """What a message is to have downstream, to the byte. From 4.0 on, brokers sort headers by name."""
    entry = received_entry(URI, exchange, redelivered=False, upstream=THERE)
    bare = original.lacking(USER_ID)
    table = with_entry(bare.headers, RECEIVED_FROM, entry)
    if sorts:
        table = tuple(sorted(table, key=lambda each: each[0].encode("utf-8", "surrogateescape")))
    return bare.with_raw_headers(encode_table(table))


async def until_depth(node: Node, queue: str, count: int) -> None:
    """What a channel gives back is counted a moment after it is closed."""

    seen: list[int] = []

    async def reached() -> bool:
        seen.append(await depth_async(node.uri(), queue))
        return seen[-1] == count

    try:
        await eventually_async(reached, what=f"{count} in {queue}")
    except NeverHappenedError as error:
        error.add_note(f"last {seen[-5:]}; as the HTTP API has it: {node.admin.get('queues', '/', queue)}"[:3_000])
        raise


class Memory:
    """How much more memory this process has needed since, at its worst."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    @staticmethod
    def _read(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))

    @property
    def grown(self) -> int:
        return self._read("VmHWM") - self._before
