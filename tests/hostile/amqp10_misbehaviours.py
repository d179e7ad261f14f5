"""What the broker of AMQP 1.0 at one end of a shovel may do that no broker should, by name, and what is shown of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from agent.amqp10 import performatives
from agent.amqp10.types import Value
from tests.hostile.peer import Behaviour
from tests.hostile.peer10 import (
    ALL_OF_IT,
    MUCH,
    PRODUCT,
    SECRET,
    Answer,
    Heard,
    Peer10,
    flow,
    instead,
    message,
    said,
    ten,
    transfer,
)

ACCEPTED: Final = performatives.ACCEPTED.encode()
BROKEN: Final = "broken AMQP 1.0: "
UNSURE: Final = "\x1b[2J\r\n\x00"  # what no terminal should see


class Row(NamedTuple):
    behaviour: Behaviour
    shown: str  # a part of the error; empty if there is none, or none yet
    keys: Mapping[str, Any] = MappingProxyType({})  # of the shovel


def error(condition: str, description: str | None = None) -> bytes:
    return performatives.ERROR.encode(condition=condition, description=description)


# At any end


@ten
async def mechanisms(peer: Peer10) -> None:
    await peer.send(performatives.SASL_HEADER)
    await peer.flood(performatives.frame(0, ALL_OF_IT, performatives.SASL))


@ten
async def silent(peer: Peer10) -> None:
    """Says nothing, ever."""
    peer.misbehaves()
    await peer.peer.reader.read()


@ten
async def silent_after_opening(peer: Peer10) -> None:
    await peer.log_in()
    peer.misbehaves()
    await peer.peer.reader.read()


@ten
async def large_open(peer: Peer10) -> None:
    """A map of a hundred thousand values."""
    await peer.greet()
    peer.misbehaves()
    much = Value("map", ((Value("symbol", "a"), Value("list", (Value("null", None),) * 200_000)),))
    await peer.say(performatives.OPEN, container_id="hostile", properties=much)
    await peer.serve()


@ten
async def close_with_secrets(peer: Peer10) -> None:
    await peer.greet()
    peer.misbehaves()
    said = error("amqp:internal-error", f"{UNSURE}{SECRET} {'x' * 10_000}")
    await peer.say(performatives.CLOSE, error=said)
    await peer.serve()


@ten
async def no_frames(peer: Peer10) -> None:
    await peer.greet()
    peer.misbehaves()
    await peer.say(performatives.OPEN, container_id="hostile", max_frame_size=0)
    await peer.serve()


@ten
async def empty_frames(peer: Peer10) -> None:
    await peer.log_in()
    await peer.flood(performatives.EMPTY)


@ten
async def begins(peer: Peer10) -> None:
    """Sessions that nobody asked for."""
    await peer.log_in()
    window: dict[str, Any] = {"incoming_window": 1, "outgoing_window": 1, "next_outgoing_id": 0}
    await peer.flood(said(performatives.BEGIN, channel=7, remote_channel=7, **window))


@ten
async def garbage(peer: Peer10) -> None:
    await peer.log_in()
    await peer.flood(bytes(range(256)))


async def nothing(peer: Peer10, heard: Heard) -> None:
    pass


async def large_attach(peer: Peer10, heard: Heard) -> None:
    await peer.attach(heard, properties={"a": Value("list", (Value("null", None),) * 200_000)})


async def attach_twice(peer: Peer10, heard: Heard) -> None:
    """The same link by two numbers."""
    await peer.attach(heard, handle=5)
    await peer.attach(heard, handle=6)


async def attach_high(peer: Peer10, heard: Heard) -> None:
    """By a number above any that it may use."""
    await peer.attach(heard, handle=MUCH)


async def refuse(peer: Peer10, heard: Heard) -> None:
    await peer.attach(heard, source=None, target=None)
    why = error("amqp:not-found", f"{UNSURE}no {SECRET}{UNSURE}")
    await peer.say(performatives.DETACH, channel=heard.channel, handle=heard["handle"], closed=True, error=why)


async def many_echoes(peer: Peer10, heard: Heard) -> None:
    await peer.answer(heard)
    await peer.flood(flow(heard, delivery_count=0, link_credit=10, echo=True))


ANYWHERE: Final = {
    "mechanisms": Row(mechanisms, BROKEN + "sasl-mechanisms where sasl-outcome was due"),
    "silent": Row(silent, "no AMQP within"),
    "large_open": Row(large_open, BROKEN + "AMQP 1.0 open of "),
    "close_with_secrets": Row(close_with_secrets, "INTERNAL_ERROR - \ufffd[2J \ufffd[redacted]"),
    "no_frames": Row(no_frames, BROKEN + "frames of 0 bytes"),
    "empty_frames": Row(empty_frames, "no answer to channel.open within"),
    "begins": Row(begins, BROKEN + "a session that wasn't asked for"),
    "garbage": Row(garbage, BROKEN),
    "silent_after_opening": Row(silent_after_opening, "no answer to channel.open within"),
    "no_begin": Row(instead(performatives.BEGIN, nothing), BROKEN + "attach in no session"),
    "no_attach": Row(instead(performatives.ATTACH, nothing), "no answer to "),
    "attach_twice": Row(instead(performatives.ATTACH, attach_twice), BROKEN + "a link that wasn't asked for"),
    "attach_high": Row(instead(performatives.ATTACH, attach_high), BROKEN + "a link that wasn't asked for"),
    "large_attach": Row(instead(performatives.ATTACH, large_attach), BROKEN + "AMQP 1.0 attach of "),
    "refuses_with_secrets": Row(instead(performatives.ATTACH, refuse), "NOT_FOUND - "),
    "echoes": Row(instead(performatives.ATTACH, many_echoes), ""),
    "restless": Row(instead(performatives.ATTACH, nothing, idle_time_out=1), "no answer to "),
}


# At a source: it sends, once there is credit


def sends(answer: Answer, **opened: Any) -> Behaviour:
    async def on_credit(peer: Peer10, heard: Heard) -> None:
        if (heard.channel, heard["handle"]) in peer.receivers and heard["link_credit"]:
            peer.misbehaves()
            await answer(peer, heard)

    async def behave(peer: Peer10) -> None:
        await peer.log_in(**opened)
        await peer.serve({performatives.FLOW: on_credit})

    return ten(behave)


async def endless_message(peer: Peer10, heard: Heard) -> None:
    await peer.send(transfer(heard, 0, message(b"x" * 1_000)[:-1], more=True))
    while True:
        await peer.send(transfer(heard, 0, b"", more=True) * 5_000)


async def crumbs(peer: Peer10, heard: Heard) -> None:
    """A message whose parts are a byte each."""
    await peer.flood(transfer(heard, 0, b"\x00", more=True))


async def without_credit(peer: Peer10, heard: Heard) -> None:
    """Many where it may send one, and ready before that: credit for the next takes a round trip to the destination."""
    many = range(1_000)
    await peer.send(b"".join(transfer(heard, number, message(b"x")) for number in many))
    await peer.serve()


async def other_link(peer: Peer10, heard: Heard) -> None:
    await peer.flood(transfer(heard, 0, message(b"x"), handle=1))


async def jumps(peer: Peer10, heard: Heard) -> None:
    await peer.send(transfer(heard, 0, message(b"x")) + transfer(heard, 9, message(b"x")))


async def aborted(peer: Peer10, heard: Heard) -> None:
    await peer.flood(transfer(heard, 0, b"x", more=True) + transfer(heard, 0, b"", aborted=True))


async def detaches(peer: Peer10, heard: Heard) -> None:
    gone = error("amqp:resource-deleted", "gone")
    await peer.flood(said(performatives.DETACH, channel=heard.channel, handle=0, closed=True, error=gone))


UNREADABLE: Final[Mapping[str, bytes]] = {
    "no section": b"not a message",
    "cut off": message(b"x" * 100)[:-1],
    "of no type": b"\x00\x53\x74\xc1\x05\x02\xa1\x01k\x01" + message(b"x"),
    "lying": b"\x00\x53\x74\xd1\xff\xff\xff\xff\x00\x00\x00\x02" + message(b"x"),
}


async def unreadable(peer: Peer10, heard: Heard) -> None:
    """Each of these once, then one that is a message."""
    for number, body in enumerate(UNREADABLE.values()):
        await peer.send(transfer(heard, number, body))
    await peer.send(transfer(heard, len(UNREADABLE), message(b"after")))
    await peer.serve()


async def other_format(peer: Peer10, heard: Heard) -> None:
    """A message that isn't in AMQP's own format, and one that is."""
    await peer.send(transfer(heard, 0, message(b"x"), message_format=0x80013700))
    await peer.send(transfer(heard, 1, message(b"after")))
    await peer.serve()


async def only_settled(peer: Peer10, heard: Heard) -> None:
    await peer.attach(heard, snd_settle_mode=1)


async def byte_by_byte(peer: Peer10, heard: Heard) -> None:
    """Its attach has shown no filter, as that of a broker that knows none."""
    for number in range(5):
        await peer.trickle(transfer(heard, number, message(b"%d" % number * 100)))
    await peer.serve()


SOURCES: Final = {
    "endless_message": Row(sends(endless_message), ""),
    "crumbs": Row(sends(crumbs), ""),
    "without_credit": Row(
        sends(without_credit), BROKEN + "a message without credit for it, or without an id", {"src-prefetch-count": 1}
    ),
    "other_link": Row(sends(other_link), BROKEN + "a link that wasn't asked for"),
    "jumps": Row(sends(jumps), BROKEN + "delivery ids that don't follow one another"),
    "aborted": Row(sends(aborted), ""),
    "detaches": Row(sends(detaches), "queue 'a' was deleted"),
    "unreadable": Row(sends(unreadable), f"{len(UNREADABLE)} messages can't be published downstream"),
    "other_format": Row(sends(other_format), "1 message can't be published downstream"),
    "only_settled": Row(instead(performatives.ATTACH, only_settled), "the source sends only settled messages"),
    "byte_by_byte": Row(
        sends(byte_by_byte),
        "the source doesn't show that it applies mine of src-consumer-args",
        {"src-consumer-args": {"mine": 1}},
    ),
}


# At a destination: it takes


async def reject(peer: Peer10, heard: Heard) -> None:
    why = performatives.REJECTED.encode(error=error("amqp:not-allowed", SECRET))
    await peer.settle(heard, heard["delivery_id"], state=why)


async def unsent(peer: Peer10, heard: Heard) -> None:
    await peer.settle(heard, 1_000_000)


async def again(peer: Peer10, heard: Heard) -> None:
    """The same outcome for ever, for which it wants an answer each time."""
    outcome: dict[str, Any] = {"role": True, "first": heard["delivery_id"], "state": ACCEPTED}
    await peer.flood(said(performatives.DISPOSITION, channel=heard.channel, **outcome))


async def end(peer: Peer10, heard: Heard) -> None:
    if not heard["delivery_id"]:  # what else is on its way is for a session that has ended
        why = error("amqp:internal-error", f"{UNSURE}{SECRET}")
        await peer.say(performatives.END, channel=heard.channel, error=why)


async def distrusts(peer: Peer10, heard: Heard) -> None:
    """Ends the session over a message, in the words of RabbitMQ 4.3."""
    if not heard["delivery_id"]:
        why = error("amqp:unauthorized-access", "user_id property set to 'a' but authenticated user was 'b'")
        await peer.say(performatives.END, channel=heard.channel, error=why)


async def close(peer: Peer10, heard: Heard) -> None:
    await peer.say(performatives.CLOSE, error=error("amqp:internal-error", f"{UNSURE}{SECRET}"))


async def stop_reading(peer: Peer10, heard: Heard) -> None:
    await peer.peer.reader.read(1)
    peer.peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    while True:
        await peer.send(performatives.EMPTY * 100)


async def no_credit(peer: Peer10, heard: Heard) -> None:
    await peer.attach(heard, credit=0)


async def takes_nothing(peer: Peer10, heard: Heard) -> None:
    await peer.attach(heard, max_message_size=1)


async def blinks(peer: Peer10, heard: Heard) -> None:
    """Credit that is given and taken back, again and again."""
    await peer.attach(heard, credit=0)
    await peer.flood(flow(heard, delivery_count=0, link_credit=0) + flow(heard, delivery_count=0, link_credit=0))


DESTINATIONS: Final = {
    "never_settles": Row(instead(performatives.TRANSFER, nothing), ""),
    "rejects": Row(instead(performatives.TRANSFER, reject), ""),
    "settles_what_wasnt_sent": Row(instead(performatives.TRANSFER, unsent), BROKEN + "an outcome of a message that"),
    "settles_again": Row(instead(performatives.TRANSFER, again), ""),
    "ends": Row(instead(performatives.TRANSFER, end), "INTERNAL_ERROR - \ufffd[2J \ufffd[redacted]"),
    "distrusts": Row(instead(performatives.TRANSFER, distrusts), ""),
    "closes": Row(instead(performatives.TRANSFER, close), "INTERNAL_ERROR - \ufffd[2J \ufffd[redacted]"),
    "stops_reading": Row(instead(performatives.TRANSFER, stop_reading), ""),
    "no_credit": Row(instead(performatives.ATTACH, no_credit), ""),
    "takes_nothing": Row(instead(performatives.ATTACH, takes_nothing), ""),
    "blinks": Row(instead(performatives.ATTACH, blinks), ""),
    "small_frames": Row(instead(performatives.TRANSFER, nothing, max_frame_size=512), ""),
}
__all__ = ["ANYWHERE", "DESTINATIONS", "MUCH", "PRODUCT", "SOURCES", "UNREADABLE"]
