"""A source: credit as the prefetch says, each message once and in order, and each settled once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.properties import Properties
from agent.amqp.wire.tables import CodecError
from agent.amqp10 import performatives
from agent.amqp10.receiving import MOST_ABORTED, filter_set
from agent.amqp10.types import NULL, Value
from agent.core import fields
from tests.unit.amqp.wire.link import pieces, turn
from tests.unit.amqp10.peer import Said, Source, message, said, transfer

RABBITMQ_3 = "3.13.7"
LAST = 2**32 - 1
FILTERS = (("x-stream-offset", fields.text("first")), ("mine", fields.long(1)))
CONSUME = methods.BASIC_CONSUME


def credit(heard: list[Said]) -> list[tuple[int, int]]:
    """The delivery count and the credit of each flow."""
    return [(each["delivery_count"], each["link_credit"]) for each in heard if each.name == "flow"]


def settled(heard: list[Said]) -> list[tuple[str, int, int]]:
    found = []
    for each in heard:
        if each.name == "disposition":
            assert each["role"] and each["settled"]
            found.append((each["state"].performative.name, each["first"], each["last"]))
    return found


async def test_a_consumer_attaches_and_gives_credit() -> None:
    source = await Source.made(prefetch=7)
    attach, flow = source.peer.heard()
    assert (attach["role"], attach["snd_settle_mode"], attach["source"]["address"].value) == (True, 0, "address")
    assert credit([flow]) == [(0, 7)]


async def test_a_link_has_an_operators_name() -> None:
    for name, shown in ((None, "Shovel s 1"), ("mine", "mine")):
        source = await Source.made(link_name=name)
        attach, _ = source.peer.heard()
        assert attach["name"] == shown


def test_whatever_json_has_becomes_a_filter() -> None:
    def described(name: str, value: Value) -> Value:
        return Value("described", (Value("symbol", name), value))

    def keyed(key: str, name: str, value: Value) -> Value:
        return Value("map", ((Value(key, name), value),))

    written = {
        "amqp:properties-filter": {"subject": "s"},
        "amqp:application-properties-filter": {"a": 1.5},
        "x-match": [None, True, {"b": [7]}],
    }
    found = filter_set(tuple((name, fields.from_json(value)) for name, value in written.items()))
    names = tuple(written)
    expected = {
        names[0]: keyed("symbol", "subject", Value("string", "s")),
        names[1]: keyed("string", "a", Value("double", 1.5)),
        names[2]: Value(
            "list",
            (Value("null", None), Value("boolean", True), keyed("string", "b", Value("list", (Value("long", 7),)))),
        ),
    }
    assert found == {name: described(name, value) for name, value in expected.items()}
    performatives.SOURCE.encode(address="a", filter=found)


async def test_credit_is_given_back_with_what_is_settled_but_not_for_each() -> None:
    source = await Source.made(prefetch=8)
    source.peer.heard()
    await source.deliver(*range(8))
    assert credit(source.peer.heard()) == []
    source.settle(1)
    assert credit(source.peer.heard()) == [(8, 1)], "it has none"
    source.settle(2)
    assert credit(source.peer.heard()) == []
    source.settle(3)
    assert credit(source.peer.heard()) == [(8, 3)]
    source.settle(8, multiple=True)
    heard = source.peer.heard()
    assert settled(heard) == [("accepted", 3, 7)]
    assert credit(heard) == [(8, 8)]


async def test_nothing_is_settled_and_credit_comes_by_itself_where_nothing_is_acknowledged() -> None:
    source = await Source.made(no_ack=True)
    attach, flow = source.peer.heard()
    assert (attach["snd_settle_mode"], flow["link_credit"]) == (1, 1_000)
    for first in range(0, 2_000, 100):
        await source.deliver(*range(first, first + 100), settled=True)
    assert len(source.came) == 2_000
    assert credit(source.peer.heard()) == [(1_000, 1_000), (2_000, 1_000)]


async def test_messages_are_released_accepted_and_settled_out_of_order() -> None:
    source = await Source.made()
    await source.deliver(*range(5))
    source.peer.heard()
    source.settle(2)
    source.settle(4, is_accepted=False)
    source.settle(3, multiple=True)
    source.settle(0, multiple=True, is_accepted=False)
    assert settled(source.peer.heard()) == [
        ("accepted", 1, 1),
        ("released", 3, 3),
        ("accepted", 0, 2),
        ("released", 4, 4),
    ]


@pytest.mark.parametrize("is_counted", [True, False])
async def test_a_limit_is_answered_once_what_was_settled_before_is_read(*, is_counted: bool) -> None:
    """Only where messages are counted: for others nobody asks for it."""
    source = await Source.made(is_counted=is_counted)
    await source.deliver(*range(6))
    source.peer.heard()
    source.settle(2, multiple=True)
    source.settle(4)
    asked = [await limit(source)]
    source.settle(3)
    asked.append(await limit(source))
    dispositions = [each for each in source.peer.heard() if each.name == "disposition"]
    assert [each["settled"] for each in dispositions] == [not is_counted] * 3
    if is_counted:
        assert not any(each.done() for each in asked)
        source.peer.say(performatives.DISPOSITION, role=False, first=0, last=1, settled=True)
        source.peer.say(performatives.DISPOSITION, role=False, first=3, settled=False)
        await turn()
        assert not any(each.done() for each in asked)
        source.peer.say(performatives.DISPOSITION, role=False, first=3, settled=True)
        await turn()
        assert [each.done() for each in asked] == [True, False]
        source.peer.say(performatives.DISPOSITION, role=False, first=2, settled=True)
        await turn()
    assert all(each.done() for each in asked)
    assert (await limit(source)).done()


async def limit(source: Source) -> asyncio.Future[Call]:
    asked = source.channel.ask(methods.BASIC_QOS, prefetch_count=10)
    await turn()
    return asked


@pytest.mark.parametrize("version", ["4.1.0", RABBITMQ_3])
@pytest.mark.parametrize("late", [0, 3])
async def test_a_consumer_is_replaced_by_one_with_another_prefetch(version: str, late: int) -> None:
    """What comes until the first one's end goes to the second, which has its own credit then."""
    source = await Source.made(prefetch=10, version=version)
    await source.deliver(0, 1)
    source.peer.heard()
    cancelled = source.cancel()
    consumed = source.consume("second", prefetch=4)
    await turn()
    [flow] = source.peer.heard()
    drains = version != RABBITMQ_3
    assert (flow["drain"], flow["link_credit"], flow["echo"]) == (drains, 8 if drains else 0, True)
    await source.deliver(*range(2, 2 + late))
    assert consumed.done() and not cancelled.done()
    source.peer.flow(handle=0, delivery_count=10 if drains else 2 + late, link_credit=0, drain=drains)
    await turn()
    assert cancelled.done() and cancelled.result()["consumer_tag"] == "tag"
    assert [each.call["consumer_tag"] for each in source.came] == ["tag"] * 2 + ["second"] * late
    left = max(0, 4 - 2 - late)
    count = 10 if drains else 2 + late
    assert credit(source.peer.heard()) == ([(count, left)] if left else [])
    source.settle(0, multiple=True)
    assert credit(source.peer.heard()) == ([(count, 4)] if 4 - left >= 1 else [])


async def test_a_drain_that_is_answered_late_costs_the_next_consumer_no_credit() -> None:
    """The peer takes back also what the next one was given before it answered."""
    source = await Source.made(prefetch=2)
    cancelled = source.cancel()
    source.consume("second", prefetch=4)
    await source.deliver(0, 1)
    assert cancelled.done(), "all its credit is used up"
    assert credit(source.peer.heard())[-1] == (2, 2)
    source.peer.flow(handle=0, delivery_count=4, link_credit=0, drain=True)
    assert credit(source.peer.heard()) == [(4, 2)]


async def test_a_consumer_without_credit_ends_at_once() -> None:
    source = await Source.made(prefetch=2)
    await source.deliver(0, 1)
    source.peer.heard()
    cancelled = source.cancel()
    await turn()
    assert cancelled.done()
    assert source.peer.heard() == []


async def test_nothing_is_given_to_nobody() -> None:
    """After a cancel what is settled gives no credit."""
    source = await Source.made(prefetch=2)
    await source.deliver(0, 1)
    source.cancel()
    await turn()
    source.peer.heard()
    source.settle(2, multiple=True)
    assert credit(source.peer.heard()) == []


@pytest.mark.parametrize("cuts", [[1] * 1_000, [100], []])
async def test_a_message_in_several_transfers(cuts: list[int]) -> None:
    source = await Source.made()
    whole = message(bytes(range(256)) * 2)
    parts = [whole[at : at + 100] for at in range(0, len(whole), 100)]
    data = b"".join(
        transfer(0, part, more=number < len(parts) - 1, delivery_id=0 if number in {0, 2} else None)
        for number, part in enumerate(parts)
    )
    source.peer.feed(data + transfer(1, message(b"next")), cuts)
    await turn()
    assert source.bodies == [whole, message(b"next")]


async def test_a_message_that_isnt_finished_is_no_message() -> None:
    source = await Source.made()
    source.peer.feed(transfer(0, b"begin", more=True) + transfer(0, b"", aborted=True))
    await source.deliver(1)
    assert source.bodies == [message(b"1")]
    source.settle(1)
    assert settled(source.peer.heard()) == [("accepted", 1, 1)]


async def abort(source: Source, number: int) -> None:
    source.peer.feed(transfer(number, b"begin", more=True) + transfer(number, b"", aborted=True))
    await turn()


@pytest.mark.parametrize("first", [0, LAST - 2])
async def test_messages_are_given_up_midway_while_others_are_open(first: int) -> None:
    source = await Source.made(prefetch=20)
    ids = [(first + number) % 2**32 for number in range(9)]
    await source.deliver(ids[0])
    await abort(source, ids[1])
    await source.deliver(ids[2], ids[3])
    await abort(source, ids[4])
    await abort(source, ids[5])
    await source.deliver(*ids[6:])
    assert source.bodies == [message(b"%d" % ids[number]) for number in (0, 2, 3, 6, 7, 8)]
    source.peer.heard()
    source.settle(3)
    source.settle(1)
    source.settle(5, multiple=True)
    source.settle(6, is_accepted=False)
    assert settled(source.peer.heard()) == [
        ("accepted", ids[3], ids[3]),
        ("accepted", ids[0], ids[0]),
        ("accepted", ids[2], ids[7]),
        ("released", ids[8], ids[8]),
    ]
    assert not source.peer.wire.closed.done()


@pytest.mark.parametrize("stays_open", [True, False])
async def test_messages_that_are_given_up_are_bounded_beside_one_that_stays_open(*, stays_open: bool) -> None:
    source = await Source.made(prefetch=20)
    if stays_open:
        await source.deliver(0)
    else:
        await abort(source, 0)
    for number in range(1, 2 * MOST_ABORTED + 3, 2):
        await source.deliver(number)
        await abort(source, number + 1)
        if not source.peer.wire.closed.done():
            source.settle(len(source.came))
    assert source.peer.wire.closed.done() is stays_open
    if stays_open:
        assert source.peer.error.endswith("101 aborted messages between others that aren't settled")


@pytest.mark.parametrize("first", [0, 1, 77, LAST - 2, LAST])
async def test_delivery_ids_begin_anywhere_and_end_at_the_last(first: int) -> None:
    source = await Source.made()
    ids = [(first + number) % 2**32 for number in range(6)]
    await source.deliver(*ids)
    assert len(source.came) == 6
    source.peer.heard()
    for tag in range(1, 7):
        source.settle(tag)
    assert [name for _, name, _ in settled(source.peer.heard())] == ids


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (transfer(5, message(b"x")), "delivery ids that don't follow one another"),
        (transfer(0, message(b"x")), "delivery ids that don't follow one another"),
        (transfer(1, message(b"x"), delivery_id=None), "a message without credit for it, or without an id"),
        (transfer(1, b"x", more=True) + transfer(2, b"y"), "a message that begins before the end of another"),
        (transfer(1, b"x", more=True) + transfer(2, b"y", settled=None), "begins before the end of another"),
        (said(performatives.TRANSFER, handle=0)[:-3], "broken AMQP 1.0"),
        (transfer(1, b"x")[:20] + b"\xff" * 40, "broken AMQP 1.0"),
    ],
)
async def test_what_makes_no_sense_ends_the_connection(wrong: bytes, why: str) -> None:
    source = await Source.made()
    await source.deliver(0)
    source.peer.feed(wrong + bytes(200_000))
    assert why in source.peer.error


async def test_a_field_that_leads_out_of_its_frame_is_no_message() -> None:
    """Nor is what follows a part of it."""
    source = await Source.made()
    wrong = bytearray(transfer(0, b""))
    wrong[12] = 200  # the size of its fields
    source.peer.feed(bytes(wrong) + transfer(1, message(b"x")) * 20)
    await turn()
    assert source.came == []
    assert "broken AMQP 1.0" in source.peer.error


async def test_no_more_comes_than_there_is_credit_for() -> None:
    source = await Source.made(prefetch=3)
    await source.deliver(0, 1, 2)
    await source.deliver(3)
    assert len(source.came) == 3
    assert "without credit" in source.peer.error


async def test_the_sessions_window_opens_again_before_it_is_closed() -> None:
    source = await Source.made(no_ack=True)
    source.peer.heard()
    for number in range(5_000):
        source.peer.feed(transfer(0, b"", more=True) if number else transfer(0, b"begin", more=True))
    windows = [(each["next_incoming_id"], each["incoming_window"]) for each in source.peer.heard()]
    assert windows == [(2048, 4096), (4096, 4096)]
    assert not source.peer.wire.closed.done()


async def test_what_settled_messages_are_told_is_no_harm() -> None:
    source = await Source.made()
    await source.deliver(0, settled=True)
    source.peer.heard()
    source.settle(1)
    assert settled(source.peer.heard()) == [("accepted", 0, 0)]


async def test_a_peer_that_settles_what_it_sent_itself() -> None:
    source = await Source.made()
    await source.deliver(0)
    source.peer.say(performatives.DISPOSITION, role=False, first=0, settled=True)
    source.settle(1)
    assert settled(source.peer.heard()) == [("accepted", 0, 0)]


async def test_an_echo_is_answered_with_what_credit_is_left() -> None:
    source = await Source.made(prefetch=5)
    await source.deliver(0, 1)
    source.peer.heard()
    source.peer.flow(handle=0, delivery_count=2, link_credit=5, echo=True)
    source.peer.flow(echo=True)
    link, session = source.peer.heard()
    assert (link["delivery_count"], link["link_credit"], link["echo"]) == (2, 3, False)
    assert (session["handle"], session["next_incoming_id"], session["echo"]) == (None, 2, False)


@pytest.mark.parametrize("missing", [{"source": None}, {"source": None, "target": None}, None])
async def test_a_refused_address_is_shown_with_the_peers_reason(missing: dict[str, Any] | None) -> None:
    source = await Source.made()
    other = await source.peer.begin(channel=1)
    other.ask(CONSUME, queue="q", consumer_tag="t")
    await turn()
    if missing is not None:
        source.peer.attach(is_source=True, channel=1, **missing)
    why = performatives.ERROR.encode(condition="amqp:not-found", description="no queue")
    source.peer.say(performatives.DETACH, channel=1, handle=0, closed=True, error=why)
    await turn()
    reason = other.closed.result()
    assert isinstance(reason, ChannelClosedError) and reason.code == 404
    assert source.channel.is_usable
    await source.deliver(0)
    assert len(source.came) == 1


OTHERWISE_NAMED = {f"f {number}": each for number, each in enumerate((filter_set(FILTERS) or {}).values())}
NONE_IN_FORCE = dict.fromkeys(filter_set(FILTERS) or {}, NULL)


@pytest.mark.parametrize(
    ("applied", "unapplied"),
    [
        ({"source": performatives.SOURCE.encode(address="a", filter=filter_set(FILTERS))}, ()),
        ({"source": performatives.SOURCE.encode(address="a", filter=filter_set(FILTERS[:1]))}, ("mine",)),
        ({"source": performatives.SOURCE.encode(address="a", filter=OTHERWISE_NAMED)}, ()),
        ({"source": performatives.SOURCE.encode(address="a", filter=NONE_IN_FORCE)}, ("x-stream-offset", "mine")),
        ({"source": performatives.SOURCE.encode(address="a")}, ("x-stream-offset", "mine")),
        ({"source": Value("described", (Value("symbol", "other"), Value("null", None)))}, ("x-stream-offset", "mine")),
        ({"source": None}, ()),  # it is refused
    ],
)
async def test_filters_that_the_peer_doesnt_repeat_arent_applied(
    applied: dict[str, Any], unapplied: tuple[str, ...]
) -> None:
    source = await Source.made(attach=applied, filters=FILTERS)
    assert source.channel.unapplied == unapplied
    assert source.channel.is_usable


async def test_a_source_that_sends_only_settled_messages_is_refused_unless_that_is_wanted() -> None:
    source = await Source.made()
    other = await source.peer.begin(channel=1)
    other.ask(CONSUME, queue="q", consumer_tag="t")
    await turn()
    source.peer.attach(is_source=True, channel=1, snd_settle_mode=1)
    await turn()
    assert "only settled messages" in str(other.closed.result())
    wanted = await source.peer.begin(channel=2)
    asked = wanted.ask(CONSUME, queue="q", consumer_tag="t", no_ack=True)
    await turn()
    source.peer.attach(is_source=True, channel=2, snd_settle_mode=1)
    await turn()
    assert asked.done() and wanted.is_usable


UNREADABLE = {
    "a header with other types": b"\x00\x53\x70\xc0\x03\x01\xa1\x00\x01" + message(b"x"),
    "a header with many fields": b"\x00\x53\x70\xc0\x0b\x0a" + b"\x40" * 10 + message(b"x"),
    "a large header": b"\x00\x53\x70\xd0\x00\x03\x00\x04\x00\x03\x00\x00" + b"\x40" * 0x30000 + message(b"x"),
    "annotations that are cut off": b"\x00\x53\x71\xd1\xff\xff\xff\xff",
}
ALSO_UNREADABLE = UNREADABLE | {"no section": b"x", "a section that is cut off": message(b"x" * 10)[:-1]}


class Frames:
    """Keeps the whole frames that come."""

    def __init__(self) -> None:
        self.came = bytearray()

    def take(self, buffer: bytearray, at: int, end: int) -> int:
        begun, (_, _, size) = at, frames.PREFIX.unpack_from(buffer, at)
        while (after := at + frames.OVERHEAD + size) <= end:
            at = after
            if end - at < frames.OVERHEAD:
                break
            _, _, size = frames.PREFIX.unpack_from(buffer, at)
        self.came += buffer[begun:at]
        return at


@pytest.mark.parametrize(
    ("body", "is_bare", "message_format"),
    [(body, True, 0) for body in UNREADABLE.values()]
    + [(body, False, 0) for body in ALSO_UNREADABLE.values()]
    + [(message(b"x"), is_bare, 0x80013700) for is_bare in (True, False)],
    ids=[*UNREADABLE, *ALSO_UNREADABLE, "another format", "another format to convert"],
)
async def test_a_message_that_cant_be_read_is_marked_and_others_pass_it(
    body: bytes, *, is_bare: bool, message_format: int
) -> None:
    """By its properties: then the data path refuses it, and no other."""
    source, taker = await Source.made(is_bare=is_bare), Frames()
    source.peer.wire.inbound.divert(source.channel.number, taker)
    source.peer.feed(transfer(0, body, message_format=message_format) + transfer(1, message(b"next")))
    await turn()
    found = pieces(bytes(taker.came))
    first, second = (payload[frames.BASIC_HEADER.size :] for kind, _, payload in found if kind == frames.HEADER)
    with pytest.raises(CodecError):
        Properties.read(first)
    Properties.read(second)
    assert b"".join(payload for kind, _, payload in found if kind == frames.BODY).startswith(body)
