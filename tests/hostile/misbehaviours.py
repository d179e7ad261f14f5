"""The table of misbehaviours: by name, what a broker does that no broker should."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call
from tests.hostile.peer import Behaviour, Peer


async def empty_bodies(peer: Peer) -> None:
    """Endless body frames that hold nothing."""

    async def flood(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        header = frames.BASIC_HEADER.pack(frames.BASIC, 0, 10) + b"\0\0"
        delivery = methods.BASIC_DELIVER.encode(
            consumer_tag=call["consumer_tag"], delivery_tag=1, exchange="x", routing_key="k"
        )
        await peer.send(frames.frame(frames.METHOD, channel, delivery) + frames.frame(frames.HEADER, channel, header))
        await peer.flood(frames.frame(frames.BODY, channel, b""))

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: flood})


async def channel_0_methods(peer: Peer) -> None:
    """Endless methods on channel 0 that nobody asked for."""
    await peer.log_in()
    unasked = frames.frame(frames.METHOD, 0, methods.CONNECTION_TUNE.encode())
    await peer.flood(unasked)


async def flow_frames(peer: Peer) -> None:
    """Endless channel.flow on a channel that stands."""

    async def flood(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        flow = frames.frame(frames.METHOD, channel, methods.CHANNEL_FLOW.encode(active=True))
        await peer.flood(flow)

    await peer.log_in()
    await peer.serve({methods.CHANNEL_OPEN: flood})


async def large_start(peer: Peer) -> None:
    """One connection.start of nearly 8 MiB, before login."""
    entry = b"\x01k" + b"t\x01"
    table = entry * (2_000_000)
    payload = methods.CONNECTION_START.encode(minor=9)[:6] + len(table).to_bytes(4, "big") + table + b"\0" * 8
    peer.misbehaves()
    await peer.send(frames.frame(frames.METHOD, 0, payload))
    await peer.serve()


async def closes_behind_open(peer: Peer) -> None:
    """Lets in and hangs up at once."""
    await peer.log_in()
    await peer.hang_up()


async def answers_no_declare(peer: Peer) -> None:
    """Heartbeats go on, and a queue.declare is never answered."""

    async def silence(peer: Peer, channel: int, call: Call) -> None:
        pass

    await peer.log_in()
    await peer.serve({methods.QUEUE_DECLARE: silence})


async def bodies_byte_by_byte(peer: Peer) -> None:
    """Endless messages whose bodies come a byte a frame."""

    async def flood(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        header = frames.BASIC_HEADER.pack(frames.BASIC, 0, 2**20) + b"\0\0"
        delivery = methods.BASIC_DELIVER.encode(
            consumer_tag=call["consumer_tag"], delivery_tag=1, exchange="x", routing_key="k"
        )
        await peer.send(frames.frame(frames.METHOD, channel, delivery) + frames.frame(frames.HEADER, channel, header))
        await peer.flood(frames.frame(frames.BODY, channel, b"x"))

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: flood})


async def heartbeats(peer: Peer) -> None:
    """Endless heartbeats."""
    await peer.log_in()
    await peer.flood(frames.HEARTBEAT_FRAME)


async def settlements(peer: Peer) -> None:
    """Endless basic.ack on the channel that messages come by."""

    async def flood(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        ack = frames.frame(frames.METHOD, channel, methods.BASIC_ACK.encode(delivery_tag=1))
        await peer.flood(ack)

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: flood})


async def unasked_content(peer: Peer) -> None:
    """A message of 500 MB on a channel where nobody consumes."""

    async def flood(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        delivery = methods.BASIC_DELIVER.encode(consumer_tag="t", delivery_tag=1, exchange="x", routing_key="k")
        header = frames.BASIC_HEADER.pack(frames.BASIC, 0, 500_000_000) + b"\0\0"
        await peer.send(frames.frame(frames.METHOD, channel, delivery) + frames.frame(frames.HEADER, channel, header))
        while True:
            await peer.send(frames.frame(frames.BODY, channel, bytes(120_000)))

    await peer.log_in()
    await peer.serve({methods.CHANNEL_OPEN: flood})


async def reads_nothing(peer: Peer) -> None:
    """Lets in, keeps the connection alive, and reads nothing more."""
    await peer.log_in()
    peer.misbehaves()
    while True:
        await peer.send(frames.HEARTBEAT_FRAME)
        await asyncio.sleep(1)


def _received_from(tag: bytes, inside: bytes) -> bytes:
    """Properties with an `x-received-from` of so many bytes."""
    entries = b"\x0fx-received-from" + tag + len(inside).to_bytes(4, "big") + inside
    return b"\x20\0" + len(entries).to_bytes(4, "big") + entries


async def large_hop_tables(peer: Peer) -> None:
    """Messages whose `x-received-from` is a table of 50,000 entries."""

    async def deliver(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        for tag in range(1, 61):
            await peer.deliver(channel, tag, properties=_received_from(b"F", b"\0V" * 50_000))

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: deliver})


async def different_hop_arrays(peer: Peer) -> None:
    """Messages whose `x-received-from` is an array of 120 KB, each another one."""

    async def deliver(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        for tag in range(1, 1_001):
            hop = b"S" + (120_000).to_bytes(4, "big") + b"%06d" % tag * 20_000
            await peer.deliver(channel, tag, properties=_received_from(b"A", hop))

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: deliver})


async def skipped_delivery_tags(peer: Peer) -> None:
    """Every second delivery tag is left out."""

    async def deliver(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        for tag in range(1, 200, 2):
            await peer.deliver(channel, tag)

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: deliver})


async def consumer_cancels(peer: Peer) -> None:
    """Endless basic.cancel that want an answer each."""

    async def flood(peer: Peer, channel: int, call: Call) -> None:
        await peer.answer(channel, call)
        cancel = frames.frame(frames.METHOD, channel, methods.BASIC_CANCEL.encode(consumer_tag=call["consumer_tag"]))
        await peer.flood(cancel)

    await peer.log_in()
    await peer.serve({methods.BASIC_CONSUME: flood})


async def secrets_accepted(peer: Peer) -> None:
    """Endless connection.update-secret-ok, though no secret was sent."""
    await peer.log_in()
    accepted = frames.frame(frames.METHOD, 0, methods.CONNECTION_UPDATE_SECRET_OK.encode())
    await peer.flood(accepted)


MISBEHAVIOURS: Final[Mapping[str, Behaviour]] = {
    found.__name__: found
    for found in (
        empty_bodies,
        channel_0_methods,
        flow_frames,
        large_start,
        closes_behind_open,
        answers_no_declare,
        bodies_byte_by_byte,
        heartbeats,
        settlements,
        unasked_content,
        reads_nothing,
        large_hop_tables,
        different_hop_arrays,
        skipped_delivery_tags,
        consumer_cancels,
        secrets_accepted,
    )
}
