"""A link without sockets: bytes in on one side, bytes out on the other, time when a test says so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pamqp.base
import pamqp.frame

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.poison_check import PoisonCheck
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Chooser
from agent.amqp.data.splice import Counts, DeliveryForwarder, Destination, PublishTracker, Rewriter
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.login import Terms
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism
from agent.core.fields import Field
from agent.core.links.poison_search import PoisonSearch
from agent.core.model import AckMode
from agent.core.rules.hops import Site
from agent.links.exchange.received_from import ReceivedFromHeader

HERE, THERE = Site("here", "v"), Site("there", "w")
EXCHANGE, URI = "downstream exchange", "amqp://there:5672"
TO_EXCHANGE = Destination(EXCHANGE)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reads = True
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def taken(self) -> bytes:
        """What was written since this was asked last."""
        found = bytes(self.written)
        self.written.clear()
        return found


def feed(connection: WireConnection, data: bytes, cuts: Iterable[int] = ()) -> None:
    """As a socket does it: what is here, in pieces of any size, into the buffer that is offered."""
    sizes = iter(cuts)
    while data and not connection.closed.done():
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data), next(sizes, len(data)))
        assert size, "a buffer that is full would never be read again"
        buffer[:size] = data[:size]
        data = data[size:]
        buffer.release()
        connection.buffer_updated(size)


def terms(heartbeat: int = 0, password: str = "p") -> Terms:
    return Terms("upstream origin", "/", "u", Secret(password), (Mechanism.PLAIN,), heartbeat)


async def opened(
    frame_max: int = 131_072,
    heartbeat: int = 0,
    *,
    password: str = "p",
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[WireConnection, Wire]:
    """`clock` is what the work of a turn is measured by; no work takes any time unless it says so."""
    wire = Wire()
    connection = WireConnection(terms(heartbeat, password), clock=clock)
    connection.connection_made(wire)
    said = (
        methods.CONNECTION_START.encode(minor=9, mechanisms="PLAIN", locales="en_US"),
        methods.CONNECTION_TUNE.encode(channel_max=2047, frame_max=frame_max, heartbeat=60),
        methods.CONNECTION_OPEN_OK.encode(),
    )
    feed(connection, b"".join(frames.frame(frames.METHOD, 0, each) for each in said))
    await connection.open({})
    wire.taken()
    return connection, wire


def ready(connection: WireConnection, skip: int = 0) -> Channel:
    """An open channel; some numbers may be taken already."""
    for _ in range(skip):
        connection.begin_channel()
    channel = connection.begin_channel()
    feed(connection, frames.frame(frames.METHOD, channel.number, methods.CHANNEL_OPEN_OK.encode()))
    return channel


async def turn() -> None:
    """Lets what is due in this turn of the loop happen."""
    for _ in range(3):
        await asyncio.sleep(0)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, call))

    @property
    def timers(self) -> int:
        return len(self._due)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self._due if each[0] <= self.now]
        self._due = [each for each in self._due if each[0] > self.now]
        for _, call in due:
            call()


@dataclass
class Link:
    """One link in between; `up` and `down` are what the brokers' sockets would be."""

    upstream: WireConnection
    downstream: WireConnection
    up: Wire
    down: Wire
    out: Channel
    into: Channel
    target: PublishTracker
    source: DeliveryForwarder
    counts: Counts
    clock: Clock

    @classmethod
    async def made(
        cls,
        *,
        ack_mode: AckMode = AckMode.ON_CONFIRM,
        max_hops: int = 1,
        trust_user_id: bool = False,
        frame_max: tuple[int, int] = (131_072, 131_072),
        channels: tuple[int, int] = (0, 1),
        largest: int | None = None,
        returns_are_counted: bool = False,
        poison_search: PoisonSearch | None = None,
        rewriter: Rewriter | None = None,
        destination: Destination = TO_EXCHANGE,
        limit: int | None = None,
        held: HeldBuffers | None = None,
        give_up_after: float | None = None,
        tracker: type[PublishTracker] = PublishTracker,
        chooser: Chooser | None = None,
        instead_of_return: Callable[[], None] | None = None,
    ) -> Link:
        upstream, up = await opened(frame_max[0])
        downstream, down = await opened(frame_max[1])
        out, into = ready(upstream, channels[0]), ready(downstream, channels[1])
        counts, clock = Counts(), Clock()
        target = tracker(
            into,
            downstream,
            counts,
            ack_mode=ack_mode,
            settle=upstream.write_soon,
            largest=largest,
            held=held or HeldBuffers(0, Room(0)),
            returns_are_counted=returns_are_counted,
            give_up_after=give_up_after,
            instead_of_return=instead_of_return,
            later=clock.later,
            clock=clock,
        )
        stamp = ReceivedFromHeader(
            URI, EXCHANGE, upstream=THERE, downstream=HERE, max_hops=max_hops, trust_user_id=trust_user_id
        )  # fmt: skip
        poison_check = (
            None if poison_search is None else PoisonCheck(poison_search, clock, lambda: target.confirms.unconfirmed)
        )
        source = DeliveryForwarder(
            out, target, rewriter or stamp, destination, poison_check=poison_check, limit=limit, chooser=chooser
        )
        upstream.inbound.divert(out.number, source)
        downstream.inbound.divert(into.number, target)
        downstream.fed_by(upstream)
        up.taken(), down.taken()
        return cls(upstream, downstream, up, down, out, into, target, source, counts, clock)

    def delivery(self, message: Sent) -> bytes:
        number = self.out.number
        return frames.frame(frames.METHOD, number, message.deliver) + frames.content(
            number, message.properties.write(), message.body, self.upstream.frame_max
        )

    async def deliver(self, *messages: Sent, cuts: Iterable[int] = ()) -> None:
        feed(self.upstream, b"".join(self.delivery(message) for message in messages), cuts)
        await turn()

    async def answer(self, method: methods.Method, **values: Any) -> None:
        """What the downstream says of publishes."""
        feed(self.downstream, frames.frame(frames.METHOD, self.into.number, method.encode(**values)))
        await turn()

    def published(self) -> list[Got]:
        return contents(self.down.taken(), self.into.number, self.downstream.frame_max)

    def settled(self) -> list[pamqp.base.Frame]:
        """What upstream was told, in order."""
        return [method for _, method, _ in calls(self.up.taken())]


@dataclass(frozen=True)
class Sent:
    tag: int
    key: str = "key"
    properties: Properties = Properties(0, ())  # noqa: RUF009 - it is frozen
    body: bytes = b""
    redelivered: bool = False

    @property
    def deliver(self) -> bytes:
        return methods.BASIC_DELIVER.encode(
            consumer_tag="federation-link-origin",
            delivery_tag=self.tag,
            redelivered=self.redelivered,
            exchange="upstream exchange",
            routing_key=self.key,
        )


@dataclass
class Settled:
    """Deliveries as a broker sees them, one that closes the channel on whoever settles one twice."""

    unsettled: set[int]
    acknowledged: set[int]
    returned: set[int]

    @classmethod
    def of(cls, tags: set[int]) -> Settled:
        return cls(set(tags), set(), set())

    @classmethod
    def read(cls, link: Link, last: int) -> Settled:
        made = cls.of(set(range(1, last + 1)))
        made.hear(link)
        return made

    def hear(self, link: Link) -> None:
        for method in link.settled():
            if method.name == "Basic.CancelOk":  # what a broker that cancels a consumer is owed
                continue
            told: dict[str, Any] = dict(method)
            tag = told["delivery_tag"]
            assert tag in self.unsettled
            tags = {each for each in self.unsettled if each <= tag} if told["multiple"] else {tag}
            self.unsettled -= tags
            if method.name == "Basic.Ack":
                self.acknowledged |= tags
            else:
                assert method.name == "Basic.Nack"
                assert told["requeue"] and not told["multiple"]
                self.returned |= tags


@dataclass(frozen=True)
class Got:
    exchange: str
    key: str
    mandatory: bool
    properties: bytes
    body: bytes


def with_table(*entries: tuple[str, Field]) -> Properties:
    return Properties(HEADERS, ((HEADERS, encode_table(entries)),))


def pieces(data: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, channel and payload of frames that lie one behind another, without anything between."""
    found, at = [], 0
    while at < len(data):
        kind, channel, size = frames.PREFIX.unpack_from(data, at)
        assert data[at + 7 + size] == frames.END
        found.append((kind, channel, data[at + 7 : at + 7 + size]))
        at += size + 8
    assert at == len(data)
    return found


def calls(data: bytes) -> list[tuple[int, pamqp.base.Frame, bytes]]:
    """The methods, read by another codec."""
    found = []
    for kind, channel, payload in pieces(data):
        assert kind == frames.METHOD
        _, _, method = pamqp.frame.unmarshal(frames.frame(kind, channel, payload))
        assert isinstance(method, pamqp.base.Frame)
        found.append((channel, method, payload))
    return found


def contents(data: bytes, number: int, frame_max: int) -> list[Got]:
    """The publishes on one channel, which nothing may interrupt."""
    left = deque(pieces(data))

    def next_of(kind: int) -> bytes:
        found, channel, payload = left.popleft()
        assert (found, channel) == (kind, number)
        assert len(payload) + frames.OVERHEAD <= frame_max
        return payload

    found: list[Got] = []
    while left:
        _, _, publish = pamqp.frame.unmarshal(frames.frame(frames.METHOD, number, next_of(frames.METHOD)))
        assert isinstance(publish, pamqp.base.Frame) and publish.name == "Basic.Publish"
        header = next_of(frames.HEADER)
        ids, weight, size = frames.BASIC_HEADER.unpack_from(header)
        assert (ids, weight) == (frames.BASIC, 0)
        body = bytearray()
        while len(body) < size:
            part = next_of(frames.BODY)
            assert part
            body += part
        assert len(body) == size
        told: dict[str, Any] = dict(publish)
        found.append(Got(told["exchange"], told["routing_key"], told["mandatory"], header[12:], bytes(body)))
    return found
