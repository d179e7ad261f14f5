"""What a broker of AMQP 1.0 says and does, for rows of `amqp10_misbehaviours` to do it otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from agent.amqp10 import performatives, sections
from agent.amqp10.performatives import Performative, Performed
from agent.amqp10.types import Value
from tests.hostile.peer import AT_ONCE, Behaviour, Peer

SECRET: Final = "s3cret"  # of the URIs that lead to hostile brokers
LARGEST: Final = 64 * 1024
MUCH: Final = 1 << 30
PRODUCT: Final = {"product": Value("string", "Hostile"), "version": Value("string", "1.0")}
ALL_OF_IT: Final = performatives.SASL_MECHANISMS.encode(sasl_server_mechanisms=("PLAIN",))

Answer: TypeAlias = Callable[["Peer10", "Heard"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Heard:
    channel: int
    performed: Performed
    payload: bytes

    def __getitem__(self, name: str) -> Any:
        return self.performed[name]


def said(performative: Performative, payload: bytes = b"", *, channel: int = 0, **values: Any) -> bytes:
    return performatives.frame(channel, performative.encode(**values) + payload)


def message(body: bytes) -> bytes:
    return sections.section(sections.DATA, Value("binary", body))


def transfer(heard: Heard, number: int, payload: bytes, *, more: bool = False, **values: Any) -> bytes:
    """A delivery to the link of a flow."""
    wanted = {
        "handle": heard["handle"],
        "delivery_id": number,
        "delivery_tag": number.to_bytes(4, "big"),
        "message_format": 0,
        "settled": False,
        "more": more,
    }
    return said(performatives.TRANSFER, payload, channel=heard.channel, **wanted | values)


class Peer10:
    """One connection that the agent opened."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.receivers: set[tuple[int, int]] = set()  # links that the agent reads from: channel and handle

    async def send(self, data: bytes) -> None:
        await self.peer.send(data)
        await asyncio.sleep(0)  # however fast the agent reads, others have their turn

    async def say(self, performative: Performative, payload: bytes = b"", *, channel: int = 0, **values: Any) -> None:
        await self.send(said(performative, payload, channel=channel, **values))

    async def flood(self, data: bytes) -> None:
        """The same again and again, and nothing is read meanwhile."""
        self.misbehaves()
        while True:
            await self.send(data * AT_ONCE)

    async def trickle(self, data: bytes) -> None:
        """Byte by byte."""
        for at in range(len(data)):
            await self.send(data[at : at + 1])

    def misbehaves(self) -> None:
        self.peer.misbehaves()

    async def read(self) -> Heard:
        """The next performative; heartbeats are none."""
        reader = self.peer.reader
        while True:
            size, _, _, channel = performatives.PREFIX.unpack(await reader.readexactly(performatives.OVERHEAD))
            body = await reader.readexactly(size - performatives.OVERHEAD)
            if body:
                performed, after = performatives.decode(body)
                return Heard(channel, performed, body[after:])

    async def greet(self) -> None:
        """The login, up to where the peer's opening is due."""
        await self.peer.reader.readexactly(len(performatives.SASL_HEADER))
        await self.send(performatives.SASL_HEADER + performatives.frame(0, ALL_OF_IT, performatives.SASL))
        await self.read()
        await self.send(performatives.frame(0, performatives.SASL_OUTCOME.encode(code=0), performatives.SASL))
        await self.peer.reader.readexactly(len(performatives.PROTOCOL_HEADER))
        await self.send(performatives.PROTOCOL_HEADER)

    async def log_in(self, **values: Any) -> None:
        await self.greet()
        wanted: dict[str, Any] = {"container_id": "hostile", "max_frame_size": LARGEST, "properties": PRODUCT}
        await self.say(performatives.OPEN, **wanted | values)

    async def serve(self, instead: Mapping[Performative, Answer] | None = None) -> None:
        """Answers whatever is asked as if it were done; `instead` answers some otherwise."""
        wanted = {kind.name: answer for kind, answer in (instead or {}).items()}
        while True:
            heard = await self.read()
            other = wanted.get(heard.performed.performative.name)
            await (other(self, heard) if other is not None else self.answer(heard))

    async def answer(self, heard: Heard, **values: Any) -> None:
        channel = heard.channel
        match heard.performed.performative:
            case performatives.BEGIN:
                window = {"incoming_window": MUCH, "outgoing_window": MUCH}
                begun: dict[str, Any] = {"remote_channel": channel, "next_outgoing_id": 0} | window
                await self.say(performatives.BEGIN, channel=channel, **begun | values)
            case performatives.ATTACH:
                await self.attach(heard, **values)
            case performatives.TRANSFER:
                await self.settle(heard, heard["delivery_id"])
            case performatives.DETACH:
                await self.say(performatives.DETACH, channel=channel, handle=heard["handle"], closed=True)
            case performatives.END | performatives.CLOSE:
                await self.say(heard.performed.performative, channel=channel)

    async def attach(self, heard: Heard, *, credit: int = 1_000, **values: Any) -> None:
        is_read_from = heard["role"]
        attached: dict[str, Any] = {
            "name": heard["name"],
            "handle": heard["handle"],
            "role": not is_read_from,
            "source": performatives.SOURCE.encode(address="a"),
            "target": performatives.TARGET.encode(address="a"),
            "initial_delivery_count": 0 if is_read_from else None,
        }
        await self.say(performatives.ATTACH, channel=heard.channel, **attached | values)
        if is_read_from:
            self.receivers.add((heard.channel, heard["handle"]))
        else:
            await self.flow(heard, delivery_count=0, link_credit=credit)

    async def flow(self, heard: Heard, **values: Any) -> None:
        await self.send(flow(heard, **values))

    async def settle(self, heard: Heard, first: int | None, **values: Any) -> None:
        outcome = {"role": True, "first": first, "settled": True, "state": performatives.ACCEPTED.encode()}
        if first is not None:
            await self.say(performatives.DISPOSITION, channel=heard.channel, **outcome | values)


def flow(heard: Heard, **values: Any) -> bytes:
    wanted = {
        "next_incoming_id": 0,
        "incoming_window": MUCH,
        "next_outgoing_id": 0,
        "outgoing_window": MUCH,
        "handle": heard["handle"],
    }
    return said(performatives.FLOW, channel=heard.channel, **wanted | values)


def ten(behave: Callable[[Peer10], Awaitable[None]]) -> Behaviour:
    """A behaviour of a broker by AMQP 1.0."""

    async def behaviour(peer: Peer) -> None:
        await behave(Peer10(peer))

    return behaviour


def instead(kind: Performative, answer: Answer, **opened: Any) -> Behaviour:
    """Lets in, and answers one performative otherwise; that counts as misbehaving."""

    async def behave(peer: Peer10) -> None:
        async def other(peer: Peer10, heard: Heard) -> None:
            peer.misbehaves()
            await answer(peer, heard)

        await peer.log_in(**opened)
        await peer.serve({kind: other})

    return ten(behave)
