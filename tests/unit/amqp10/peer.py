"""A broker of AMQP 1.0 without a socket: it says what a test says, and keeps what the translator writes to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, Message
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.login import PATIENCE, Terms
from agent.amqp.wire.methods import Call
from agent.amqp10 import performatives, sections
from agent.amqp10.performatives import Performative, Performed
from agent.amqp10.terminus import Terminus
from agent.amqp10.translator import Translator
from agent.amqp10.types import Value
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism
from tests.unit.amqp.wire.link import Wire, turn

PASSWORD: Final = "s3cret-pass"
RABBITMQ: Final = {"product": Value("string", "RabbitMQ"), "version": Value("string", "4.1.0")}
MUCH: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Said:
    """What the translator said in a session, and what a transfer carries."""

    channel: int
    performed: Performed
    payload: bytes

    @property
    def name(self) -> str:
        return self.performed.performative.name

    def __getitem__(self, name: str) -> Any:
        return self.performed[name]


@dataclass
class Peer:
    """One connection; `wire` is its side that speaks 0-9-1."""

    translator: Translator
    socket: Wire
    opening: asyncio.Task[None]
    headers: list[bytes] = field(default_factory=list)  # of protocols, as they came
    beats: int = 0

    @classmethod
    def made(
        cls,
        *,
        is_source: bool = False,
        is_bare: bool = True,
        mechanisms: tuple[Mechanism, ...] = (Mechanism.PLAIN,),
        is_anonymous: bool = False,
        address: str = "address",
        heartbeat: int = 0,
        frame_max: int | None = None,
        patience: float = PATIENCE,
        clock: Callable[[], float] = lambda: 0.0,
        **of_terminus: Any,
    ) -> Peer:
        """Connected, and nothing said yet; no work takes any time unless `clock` says so."""
        terms = Terms(
            "shovel end",
            "v",
            "u",
            Secret(PASSWORD),
            mechanisms,
            heartbeat,
            frame_max=frame_max,
            patience=patience,
        )
        terminus = Terminus(address, is_source=is_source, is_bare=is_bare, **of_terminus)
        translator = Translator(
            terms, terminus, name="Shovel s", hostname="vhost:v", is_anonymous=is_anonymous, clock=clock
        )
        socket = Wire()
        translator.connection_made(socket)
        return cls(translator, socket, asyncio.ensure_future(translator.wire.open({})))

    @property
    def wire(self) -> WireConnection:
        return self.translator.wire

    @property
    def error(self) -> str:
        """Why the connection has ended."""
        return str(self.wire.closed.result())

    def feed(self, data: bytes, cuts: Iterable[int] = ()) -> None:
        """In pieces of any size."""
        sizes = iter(cuts)
        while data:
            size = next(sizes, len(data))
            self.translator.data_received(data[:size])
            data = data[size:]

    def sasl(self, performative: Performative, **values: Any) -> None:
        self.feed(performatives.frame(0, performative.encode(**values), performatives.SASL))

    def say(self, performative: Performative, payload: bytes = b"", *, channel: int = 0, **values: Any) -> None:
        self.feed(said(performative, payload, channel=channel, **values))

    def heard(self) -> list[Said]:
        """What was written since this was asked last, but for headers and heartbeats."""
        data, at, found = self.socket.taken(), 0, []
        while at < len(data):
            if data.startswith(b"AMQP", at):
                self.headers.append(data[at : at + 8])
                at += 8
                continue
            frame = performatives.find_frame(data, at, MUCH)
            assert frame is not None, "half a frame was written"
            _, channel, begin, at = frame
            if begin == at:
                self.beats += 1
                continue
            performed, after = performatives.decode(data, begin, end=at)
            found.append(Said(channel, performed, data[after:at]))
        return found

    async def log_in(self) -> None:
        self.feed(performatives.SASL_HEADER)
        self.sasl(performatives.SASL_MECHANISMS, sasl_server_mechanisms=("PLAIN", "EXTERNAL", "ANONYMOUS"))
        self.sasl(performatives.SASL_OUTCOME, code=0)
        self.feed(performatives.PROTOCOL_HEADER)
        await turn()

    async def open(self, **values: Any) -> Peer:
        await self.log_in()
        self.say(performatives.OPEN, **({"container_id": "peer", "properties": RABBITMQ} | values))
        await turn()
        await self.opening
        self.heard()
        return self

    async def is_read(self) -> None:
        """Wait until all that was said is read."""
        await turn()
        while not self.socket.reads and not self.wire.closed.done():
            await turn()

    async def lose(self) -> None:
        """The socket is lost."""
        self.socket.is_closed = True
        self.translator.connection_lost(None)
        await turn()

    async def begin(self, *, channel: int = 0, window: int = MUCH) -> Channel:
        """A session; the first one is that of channel 1."""
        made = self.wire.begin_channel()
        await turn()
        self.say(
            performatives.BEGIN,
            channel=channel,
            remote_channel=made.number - 1,
            next_outgoing_id=0,
            incoming_window=window,
            outgoing_window=MUCH,
        )
        await turn()
        self.heard()
        return made

    def attach(self, *, is_source: bool, channel: int = 0, **values: Any) -> None:
        """As a decent broker answers."""
        wanted: dict[str, Any] = {
            "name": "Shovel s 1",
            "handle": 0,
            "role": not is_source,
            "source": performatives.SOURCE.encode(address="address"),
            "target": performatives.TARGET.encode(address="address"),
            "initial_delivery_count": 0 if is_source else None,
        }
        self.say(performatives.ATTACH, channel=channel, **wanted | values)

    def flow(self, *, channel: int = 0, window: int = MUCH, next_incoming: int | None = 0, **values: Any) -> None:
        self.say(
            performatives.FLOW,
            channel=channel,
            next_incoming_id=next_incoming,
            incoming_window=window,
            next_outgoing_id=0,
            outgoing_window=MUCH,
            **values,
        )


def said(performative: Performative, payload: bytes = b"", *, channel: int = 0, **values: Any) -> bytes:
    return performatives.frame(channel, performative.encode(**values) + payload)


def transfer(number: int, payload: bytes, *, channel: int = 0, more: bool = False, **values: Any) -> bytes:
    """A transfer of the delivery with this id, as most brokers encode it."""
    fields = {
        "handle": 0,
        "delivery_id": number,
        "delivery_tag": number.to_bytes(4, "big"),
        "message_format": 0,
        "settled": False,
        "more": more,
    }
    return said(performatives.TRANSFER, payload, channel=channel, **fields | values)


def message(body: bytes) -> bytes:
    return sections.section(sections.DATA, Value("binary", body))


@dataclass
class Source:
    """A consumer of a peer's address, on one channel."""

    peer: Peer
    channel: Channel
    tag: str = ""
    came: list[Message] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    @classmethod
    async def made(
        cls,
        *,
        prefetch: int = 10,
        no_ack: bool = False,
        version: str = "4.1.0",
        attach: dict[str, Any] | None = None,
        **wanted: Any,
    ) -> Source:
        peer = await Peer.made(is_source=True, **wanted).open(
            properties=RABBITMQ | {"version": Value("string", version)}
        )
        made = cls(peer, await peer.begin())
        made.channel.on_message = made.came.append
        made.channel.on_cancel = made.cancelled.append
        made.consume("tag", prefetch=prefetch, no_ack=no_ack)
        await turn()
        peer.attach(is_source=True, **attach or {})
        await turn()
        return made

    def consume(self, tag: str, *, prefetch: int, no_ack: bool = False) -> asyncio.Future[Call]:
        self.tag = tag
        if not no_ack:
            self.channel.ask(methods.BASIC_QOS, prefetch_count=prefetch)
        return self.channel.ask(methods.BASIC_CONSUME, queue="q", consumer_tag=tag, no_ack=no_ack)

    def cancel(self) -> asyncio.Future[Call]:
        return self.channel.ask(methods.BASIC_CANCEL, consumer_tag=self.tag)

    def settle(self, tag: int, *, multiple: bool = False, is_accepted: bool = True) -> None:
        if is_accepted:
            self.channel.send(methods.BASIC_ACK, delivery_tag=tag, multiple=multiple)
        else:
            self.channel.send(methods.BASIC_NACK, delivery_tag=tag, multiple=multiple, requeue=True)

    async def deliver(self, *numbers: int, **values: Any) -> None:
        self.peer.feed(b"".join(transfer(number, message(b"%d" % number), **values) for number in numbers))
        await self.peer.is_read()

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.came]


@dataclass
class Target:
    """A publisher to a peer's address, on one channel, with confirms."""

    peer: Peer
    channel: Channel
    outcomes: list[tuple[str, int, bool]] = field(default_factory=list)  # method, tag, multiple
    published: int = 0

    @classmethod
    async def made(
        cls,
        *,
        credit: int | None = 100,
        window: int = MUCH,
        attach: dict[str, Any] | None = None,
        open_with: dict[str, Any] | None = None,
        **wanted: Any,
    ) -> Target:
        peer = await Peer.made(**wanted).open(**open_with or {})
        made = cls(peer, await peer.begin(window=window))
        made.channel.on_confirm = made._hear
        selected = made.channel.ask(methods.CONFIRM_SELECT)
        await turn()
        peer.attach(is_source=False, **attach or {})
        if credit is not None:
            peer.flow(handle=0, delivery_count=0, link_credit=credit, window=window)
        await turn()
        await selected
        peer.heard()
        return made

    def _hear(self, call: Call) -> None:
        self.outcomes.append((call.method.name, call["delivery_tag"], call["multiple"]))

    async def publish(self, *bodies: bytes, properties: bytes = b"\0\0") -> None:
        for body in bodies:
            self.channel.publish("", "k", properties, body)
        self.published += len(bodies)
        await turn()

    async def dispose(self, first: int, last: int | None = None, **values: Any) -> None:
        wanted: dict[str, Any] = {"role": True, "settled": True, "state": performatives.ACCEPTED.encode()} | values
        self.peer.say(performatives.DISPOSITION, first=first, last=last, **wanted)
        await turn()

    def transfers(self) -> list[Said]:
        return [each for each in self.peer.heard() if each.name == "transfer"]

    @property
    def settled(self) -> dict[int, str]:
        """The outcome of each publish, which must be one."""
        found: dict[int, str] = {}
        confirmed = 0
        for name, tag, multiple in self.outcomes:
            assert 0 < tag <= self.published
            tags = [each for each in range(confirmed + 1, tag + 1) if each not in found] if multiple else [tag]
            confirmed = max(confirmed, tag) if multiple else confirmed
            assert tags and not found.keys() & set(tags), "confirmed twice"
            found |= dict.fromkeys(tags, name)
        return found
