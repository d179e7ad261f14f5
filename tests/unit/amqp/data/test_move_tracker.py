"""What a move publishes is acknowledged once a queue has it; what is refused or returned stays."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.move_tracker import MoveTracker
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Delivery, Destination, Untouched
from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core.fields import Field, Table, text
from tests.unit.amqp.wire.link import Link, Sent, Settled, feed, turn

ROOM = 1_000_000


async def moved(room: int = ROOM) -> Link:
    link = await Link.made(
        rewriter=Untouched(), destination=Destination("x"), held=HeldBuffers(room, Room(room)), tracker=MoveTracker
    )
    assert isinstance(link.target, MoveTracker)
    return link


def with_headers(entries: Table) -> Properties:
    table = encode_table(entries)
    return Properties(HEADERS, ((HEADERS, table),))


def as_returned(properties: Properties) -> bytes:
    """As brokers from 4.0 on do it: names sorted, of two equal ones the first alone, and no BCC."""
    found: dict[str, Field] = {}
    for name, value in properties.headers:
        found.setdefault(name, Field("l", value.value) if value.tag == "L" else value)
    found.pop("BCC", None)
    return with_headers(tuple(sorted(found.items()))).write()


async def give_back(link: Link, message: Sent, properties: bytes | None = None) -> None:
    returned = methods.BASIC_RETURN.encode(code=312, text="NO_ROUTE", exchange="x", routing_key=message.key)
    written = message.properties.write() if properties is None else properties
    number = link.into.number
    content = frames.content(number, written, message.body, link.downstream.frame_max)
    feed(link.downstream, frames.frame(frames.METHOD, number, returned) + content)
    await turn()


values = st.one_of(st.builds(text, st.sampled_from(["", "a"])), st.builds(Field, st.just("l"), st.integers(0, 3)))
headers = st.lists(st.tuples(st.sampled_from(["n", "a", "BCC", "zz"]), values), max_size=3).map(tuple)
outcomes = st.sampled_from(["ack", "nack", "return"])
messages = st.lists(st.tuples(st.sampled_from(["k", "l"]), headers, st.sampled_from([b"", b"b", b"c"]), outcomes))


@given(messages.filter(bool), st.booleans(), st.randoms(use_true_random=False))
async def test_each_outcome_is_that_of_its_message(
    drawn: list[tuple[str, Table, bytes, str]], is_new: bool, order: random.Random
) -> None:
    """Returns come in order, before their confirms; confirms come in any order. Of messages that differ in nothing that
    a broker returns, any may be taken for another."""
    link = await moved()
    sent = [Sent(tag, key, with_headers(table), body) for tag, (key, table, body, _) in enumerate(drawn, 1)]
    await link.deliver(*sent)
    assert len(link.published()) == len(sent)
    ends = [end for *_, end in drawn]
    for message, end in zip(sent, ends, strict=True):
        if end == "return":
            await give_back(link, message, as_returned(message.properties) if is_new else None)
    numbers = list(range(1, len(sent) + 1))
    order.shuffle(numbers)
    for number in numbers:
        method = methods.BASIC_NACK if ends[number - 1] == "nack" else methods.BASIC_ACK
        await link.answer(method, delivery_tag=number)

    def content(tag: int) -> tuple[object, ...]:
        found = sent[tag - 1]
        return found.key, as_returned(found.properties), found.body

    settled = Settled.read(link, len(sent))
    assert not settled.returned
    doubtful = {content(tag) for tag, end in enumerate(ends, 1) if end == "return"}
    sure = [tag for tag in numbers if content(tag) not in doubtful]
    assert {tag for tag in sure if tag in settled.acknowledged} == {tag for tag in sure if ends[tag - 1] == "ack"}
    kept = {"refused": ends.count("nack"), "unroutable": ends.count("return")}
    if all(ends[tag - 1] != "nack" or content(tag) not in doubtful for tag in numbers):
        assert link.counts.unpublishable == {reason: count for reason, count in kept.items() if count}
        assert len(settled.acknowledged) == link.counts.forwarded == ends.count("ack")
    assert link.counts.taken == link.counts.forwarded + sum(link.counts.unpublishable.values())


async def test_confirms_of_several_leave_out_what_was_returned() -> None:
    link = await moved()
    sent = [Sent(tag, body=b"%d" % tag) for tag in range(1, 6)]
    await link.deliver(*sent)
    await give_back(link, sent[1])
    await give_back(link, sent[3])
    await link.answer(methods.BASIC_ACK, delivery_tag=5, multiple=True)
    assert Settled.read(link, 5).acknowledged == {1, 3, 5}
    assert link.target.confirms.held == 2


async def test_a_large_message_is_recognized_from_its_parts() -> None:
    link = await moved()
    sent = [Sent(1, body=bytes(300_000)), Sent(2, body=b"b" * 300_000)]
    await link.deliver(*sent)
    await give_back(link, sent[1])
    await link.answer(methods.BASIC_ACK, delivery_tag=2, multiple=True)
    assert Settled.read(link, 2).acknowledged == {1}


@pytest.mark.parametrize("room", [0, ROOM])
async def test_nothing_is_settled_once_it_is_not_known_what_came_back(room: int) -> None:
    """It isn't held any more, or was never published."""
    link, doubts = await moved(room), []
    assert isinstance(link.target, MoveTracker)
    link.target.on_doubt = lambda: doubts.append(1)
    await link.deliver(Sent(1, body=b"1"), Sent(2, body=b"2"))
    await give_back(link, Sent(1, body=b"other" if room else b"1"))
    await link.answer(methods.BASIC_ACK, delivery_tag=2, multiple=True)
    assert doubts == [1]
    assert not Settled.read(link, 2).acknowledged
    assert link.counts.forwarded == 0, "one of them has not arrived"
    link.target.abandon()
    assert link.counts.given_back == 2


async def test_what_was_confirmed_before_the_doubt_is_acknowledged() -> None:
    link = await moved()
    await link.deliver(Sent(1, body=b"1"), Sent(2, body=b"2"))
    number = link.into.number
    returned = methods.BASIC_RETURN.encode(code=312, text="NO_ROUTE", exchange="x", routing_key="none")
    answers = [methods.BASIC_ACK.encode(delivery_tag=1), returned, None, methods.BASIC_ACK.encode(delivery_tag=2)]
    empty = frames.content(number, b"\0\0", b"", link.downstream.frame_max)
    parts = [empty if each is None else frames.frame(frames.METHOD, number, each) for each in answers]
    feed(link.downstream, b"".join(parts))
    await turn()
    assert Settled.read(link, 2).acknowledged == {1}
    assert link.counts.forwarded == 1


@pytest.mark.parametrize("kind", [frames.HEADER, frames.BODY])
@pytest.mark.parametrize("payload", [b"", b"cut off", bytes(14)])
async def test_content_that_nothing_announced_ends_the_connection(kind: int, payload: bytes) -> None:
    link = await moved()
    feed(link.downstream, frames.frame(kind, link.into.number, payload))
    await turn()
    assert link.downstream.closed.done()


async def test_one_alone_is_recognized_by_its_body() -> None:
    """Whatever a broker has made of its headers."""
    link = await moved()
    sent = [Sent(1, body=b"1", properties=with_headers((("n", text("a")),))), Sent(2, body=b"2")]
    await link.deliver(*sent)
    await give_back(link, sent[0], with_headers((("n", text("b")),)).write())
    await link.answer(methods.BASIC_ACK, delivery_tag=2, multiple=True)
    assert Settled.read(link, 2).acknowledged == {2}


class ByBody:
    """Lets messages with an odd first byte of their key stay; of one it doesn't know at first."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.unknown = b""

    def choose(self, _properties: bytes, delivery: Delivery, _size: int, /) -> bytes | str | None:
        key = delivery.routing_key
        self.asked.append(key)
        if key == self.unknown:
            return None
        return "stays" if key[0] % 2 else b"\x01e\x03to-"


async def test_a_chooser_says_where_each_goes_or_that_it_stays() -> None:
    chooser = ByBody()
    link = await Link.made(
        rewriter=Untouched(),
        destination=Destination(),
        held=HeldBuffers(ROOM, Room(ROOM)),
        tracker=MoveTracker,
        chooser=chooser,
    )
    chooser.unknown = b"f"
    sent = [
        Sent(tag, key, body=key.encode() * size)
        for tag, (key, size) in enumerate(zip("abcdefgh", (1, 0, 9, 200_000, 1, 1, 0, 2), strict=True), 1)
    ]
    await link.deliver(*sent[:5])
    link.upstream.inbound.hold(chooser)
    await link.deliver(*sent[5:])
    assert [(got.exchange, got.key, len(got.body)) for got in link.published()] == [
        ("e", "to-", 0),
        ("e", "to-", 200_000),
    ]
    assert list(dict.fromkeys(chooser.asked)) == [b"a", b"b", b"c", b"d", b"e", b"f"], (
        "nothing passes the one that isn't known"
    )
    chooser.unknown = b""
    link.upstream.inbound.release(chooser)
    await turn()
    assert [(got.exchange, got.key, len(got.body)) for got in link.published()] == [("e", "to-", 1), ("e", "to-", 2)]
    assert link.counts.unpublishable == {"stays": 4}
    await link.answer(methods.BASIC_ACK, delivery_tag=4, multiple=True)
    assert Settled.read(link, 8).acknowledged == {2, 4, 6, 8}
    assert (link.counts.taken, link.counts.forwarded) == (8, 4)


async def test_it_takes_no_more_once_it_is_said() -> None:
    link = await moved()
    await link.deliver(*(Sent(tag, body=b"b") for tag in range(1, 4)))
    link.source.take_no_more()
    await link.deliver(*(Sent(tag, body=b"b") for tag in range(4, 8)))
    assert len(link.published()) == 3
    assert (link.counts.taken, link.source.is_exhausted) == (3, True)
