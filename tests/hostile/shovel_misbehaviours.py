"""What the broker at one end of a shovel may do that no broker should, by name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call, Method
from agent.amqp.wire.tables import short_string
from tests.hostile.misbehaviours import MISBEHAVIOURS
from tests.hostile.peer import Answer, Behaviour, Peer

INTERNAL_ERROR: Final = 541


def _on_publish(what: Callable[[Peer, int, int], object]) -> Behaviour:
    """`what` is done with the number of each publish on its channel; its coroutine is awaited."""

    async def behave(peer: Peer) -> None:
        published: Counter[int] = Counter()

        async def published_one(peer: Peer, channel: int, _: Call) -> None:
            published[channel] += 1
            done = what(peer, channel, published[channel])
            if asyncio.iscoroutine(done):
                await done

        await peer.log_in()
        await peer.serve({methods.BASIC_PUBLISH: published_one})

    return behave


def _instead(method: Method, what: Answer) -> Behaviour:
    async def behave(peer: Peer) -> None:
        await peer.log_in()
        await peer.serve({method: what})

    return behave


async def _close_connection(peer: Peer, channel: int, call: Call) -> None:
    await peer.say(0, methods.CONNECTION_CLOSE, code=INTERNAL_ERROR, text="INTERNAL_ERROR")


async def _close_channel(peer: Peer, channel: int, number: int) -> None:
    if number == 1:  # what else is on its way is for a channel that is closed
        await peer.say(channel, methods.CHANNEL_CLOSE, code=406, text="PRECONDITION_FAILED - not this one")


async def _hang_up(peer: Peer, channel: int, call: Call) -> None:
    peer.writer.transport.abort()


async def _return_and_confirm(peer: Peer, channel: int, number: int) -> None:
    returned = methods.BASIC_RETURN.encode(code=312, text="NO_ROUTE", exchange="", routing_key="dest")
    await peer.send(frames.frame(frames.METHOD, channel, returned) + frames.content(channel, b"\0\0", b"x", 4096))
    await peer.say(channel, methods.BASIC_ACK, delivery_tag=number)


DESTINATIONS: Final[Mapping[str, Behaviour]] = {
    "never_confirms": _on_publish(lambda *_: None),
    "refuses_everything": _on_publish(lambda peer, channel, n: peer.say(channel, methods.BASIC_NACK, delivery_tag=n)),
    "confirms_what_was_never_published": _on_publish(
        lambda peer, channel, n: peer.say(channel, methods.BASIC_ACK, delivery_tag=n + 1_000_000)
    ),
    "returns_everything": _on_publish(_return_and_confirm),
    "closes_connection_on_publish": _instead(methods.BASIC_PUBLISH, _close_connection),
    "hangs_up_on_publish": _instead(methods.BASIC_PUBLISH, _hang_up),
    "closes_channel_on_publish": _on_publish(_close_channel),
    "closes_connection_on_declare": _instead(methods.QUEUE_DECLARE, _close_connection),
    "hangs_up_on_declare": _instead(methods.QUEUE_DECLARE, _hang_up),
}


def headers(*entries: bytes) -> bytes:
    """Properties with a headers table of these entries."""
    table = b"".join(entries)
    return b"\x20\0" + len(table).to_bytes(4, "big") + table


def _sized(tag: bytes, inside: bytes) -> bytes:
    return tag + len(inside).to_bytes(4, "big") + inside


def _nested(depth: int) -> bytes:
    """An array in an array and so on, or what says that it is."""
    found = b""
    for _ in range(depth):
        found = _sized(b"A", found)
    return found


_SHOVELLED: Final = short_string("x-shovelled")
JUNK: Final[Mapping[str, bytes]] = {
    "text": _sized(b"S", b"forged"),
    "table": _sized(b"F", short_string("a") + b"t\1"),
    "numbers": _sized(b"A", (b"l" + bytes(8)) * 100),
    "large": _sized(b"S", bytes(100_000)),
    "large list": _sized(b"A", _sized(b"S", bytes(1_000)) * 100),
    "longer than it is": b"S" + (2**32 - 1).to_bytes(4, "big") + b"x",
    "of no type": b"\xff\xff\xff",
    "of many levels": _nested(5_000),
    "twice": _sized(b"S", b"a") + _SHOVELLED + _sized(b"S", b"b"),
}
UNREADABLE: Final = ("longer than it is", "of no type")


async def _deliver_junk(peer: Peer, channel: int, call: Call) -> None:
    """Each value of `x-shovelled` once, then one message without it."""
    await peer.answer(channel, call)
    for tag, value in enumerate(JUNK.values(), 1):
        await peer.deliver(channel, tag, properties=headers(_SHOVELLED, value), body=b"junk")
    await peer.deliver(channel, len(JUNK) + 1, body=b"after")


async def _garbage(peer: Peer, channel: int, call: Call) -> None:
    await peer.answer(channel, call)
    await peer.send(bytes(range(256)) * 1_000)


async def _large_headers(peer: Peer, channel: int, call: Call) -> None:
    """As large as a frame may be, so that none of ours fits."""
    await peer.answer(channel, call)
    for tag in range(1, 201):
        await peer.deliver(channel, tag, properties=headers(short_string("k"), _sized(b"S", bytes(131_000))))


SOURCES: Final[Mapping[str, Behaviour]] = {
    "junk_shovelled": _instead(methods.BASIC_CONSUME, _deliver_junk),
    "garbage": _instead(methods.BASIC_CONSUME, _garbage),
    "large_headers": _instead(methods.BASIC_CONSUME, _large_headers),
    "closes_connection_on_declare": _instead(methods.QUEUE_DECLARE, _close_connection),
    **{name: MISBEHAVIOURS[name] for name in ("bodies_byte_by_byte", "skipped_delivery_tags")},
}
FLOOD: Final[Mapping[str, Behaviour]] = {"consumer_cancels": MISBEHAVIOURS["consumer_cancels"]}
