"""A destination: as much as it takes and no more, in order, and one outcome for each message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.amqp10 import performatives
from agent.amqp10.performatives import Performative
from agent.amqp10.translator import BLOCKED_AFTER, MOST_UNREAD, MOST_WAITING
from agent.amqp10.types import Value
from agent.core.fields import text
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.amqp10.peer import MUCH, PASSWORD, Peer, Said, Source, Target, message

ACK, NACK = "basic.ack", "basic.nack"


def whole(transfers: list[Said]) -> dict[int, bytes]:
    """Each delivery, by its id."""
    found: dict[int, bytes] = {}
    for each in transfers:
        if each["delivery_id"] is not None:
            assert each["delivery_id"] == len(found)
            found[each["delivery_id"]] = b""
        found[len(found) - 1] += each.payload
    return found


async def test_nothing_is_written_without_credit() -> None:
    target = await Target.made(credit=None)
    await target.publish(b"a", b"b", b"c")
    assert target.transfers() == []
    target.peer.flow(handle=0, delivery_count=0, link_credit=1)
    assert whole(target.transfers()) == {0: b"a"}
    target.peer.flow(handle=0, delivery_count=0, link_credit=1, next_incoming=0)  # of before
    assert target.transfers() == []
    target.peer.flow(handle=0, delivery_count=1, link_credit=5, next_incoming=1)
    assert [each.payload for each in target.transfers()] == [b"b", b"c"]


async def test_credit_is_taken_back() -> None:
    target = await Target.made(credit=100)
    await target.publish(b"a")
    target.peer.flow(handle=0, delivery_count=1, link_credit=0, next_incoming=1)
    await target.publish(b"b")
    target.peer.flow(handle=0, delivery_count=0, link_credit=1, next_incoming=1)  # less than was used
    assert len(target.transfers()) == 1
    target.peer.flow(handle=0, delivery_count=1, link_credit=1, next_incoming=1)
    assert len(target.transfers()) == 1


async def test_credit_is_drained() -> None:
    target = await Target.made(credit=0)
    await target.publish(b"a")
    target.peer.flow(handle=0, delivery_count=0, link_credit=10, drain=True)
    written, flow = target.peer.heard()
    assert written.payload == b"a"
    assert (flow["delivery_count"], flow["link_credit"]) == (10, 0)
    await target.publish(b"b")
    assert target.transfers() == []
    target.peer.flow(handle=0, delivery_count=10, link_credit=1, next_incoming=1)
    assert [each["delivery_id"] for each in target.transfers()] == [1]


async def test_an_echo_is_answered() -> None:
    target = await Target.made(credit=10)
    await target.publish(b"a")
    target.peer.heard()
    target.peer.flow(handle=0, delivery_count=0, link_credit=10, next_incoming=1, echo=True)
    [flow] = target.peer.heard()
    assert (flow["delivery_count"], flow["link_credit"], flow["next_outgoing_id"], flow["echo"]) == (1, 9, 1, False)


async def test_a_session_window_that_closes_holds_messages_midway() -> None:
    target = await Target.made(window=2, open_with={"max_frame_size": 512})
    await target.publish(bytes(1_000), b"b")
    first = target.transfers()
    assert [(len(each.payload), each["more"]) for each in first] == [(448, True), (448, True)]
    target.peer.flow(window=0, next_incoming=2, handle=0, delivery_count=1, link_credit=100)
    assert target.transfers() == []
    target.peer.flow(window=10, next_incoming=2)
    rest = target.transfers()
    assert whole(first + rest) == {0: bytes(1_000), 1: b"b"}
    assert [each["more"] for each in rest] == [False, False]


@pytest.mark.parametrize("size", [512, 513, 4_096, 2**32 - 1])
async def test_no_frame_is_larger_than_the_peer_takes(size: int) -> None:
    target = await Target.made(open_with={"max_frame_size": size})
    body = bytes(range(256)) * 3_000
    await target.publish(body, b"", b"x")
    data = bytes(target.peer.socket.written)
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        assert length <= size
        at += length
    assert whole(target.transfers()) == {0: body, 1: b"", 2: b"x"}


async def test_outcomes_in_any_order() -> None:
    target = await Target.made()
    await target.publish(*[b"%d" % number for number in range(10)])
    for first, last in ((9, None), (3, 5), (0, 0), (4, 7), (5, 5), (1, 2), (0, 3), (8, 9)):
        await target.dispose(first, last)
    assert target.settled == dict.fromkeys(range(1, 11), ACK)


@pytest.mark.parametrize("order", [range(0, 200, 2), range(198, -2, -2)])
async def test_every_other_one_first(order: range) -> None:
    target = await Target.made(credit=200)
    await target.publish(*[b"x"] * 200)
    for first in (*order, *(each + 1 for each in order)):
        await target.dispose(first)
    await target.peer.is_read()
    assert target.settled == dict.fromkeys(range(1, 201), ACK)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (performatives.ACCEPTED.encode(), ACK),
        (performatives.REJECTED.encode(), NACK),
        (performatives.REJECTED.encode(error=performatives.ERROR.encode(condition="amqp:internal-error")), NACK),
        (performatives.RELEASED.encode(), NACK),
        (performatives.MODIFIED.encode(delivery_failed=True), NACK),
        (Value("described", (Value("symbol", "com.example:declared:list"), Value("list", ()))), NACK),
        (None, NACK),
        (performatives.RECEIVED.encode(section_number=0, section_offset=0), None),
    ],
)
@pytest.mark.parametrize("is_settled", [True, False])
async def test_outcomes_of_every_kind(state: Any, outcome: str | None, *, is_settled: bool) -> None:
    target = await Target.made()
    await target.publish(b"a")
    target.transfers()
    await target.dispose(0, state=state, settled=is_settled)
    if state is None and not is_settled:
        outcome = None
    assert target.settled == ({1: outcome} if outcome else {})
    answers = target.peer.heard()
    if outcome and not is_settled:
        [answer] = answers
        assert (answer["role"], answer["first"], answer["last"], answer["settled"]) == (False, 0, 0, True)
    else:
        assert answers == []


async def test_why_a_message_was_rejected_is_known_without_secrets() -> None:
    target = await Target.made()
    await target.publish(*[b"x"] * 5)
    why = performatives.ERROR.encode(condition="com.example:odd", description=f"too\nlarge for {PASSWORD}")
    unexplained = performatives.ERROR.encode(condition="com.example:odd")
    for number, (state, shown) in enumerate(
        (
            (performatives.REJECTED.encode(error=why), "too large for [redacted]"),
            (performatives.REJECTED.encode(), ""),
            (performatives.REJECTED.encode(error=unexplained), "com.example:odd"),
            (performatives.ACCEPTED.encode(), "com.example:odd"),
            (performatives.RELEASED.encode(), ""),
        )
    ):
        await target.dispose(number, state=state)
        assert target.channel.rejection == shown


async def test_a_settled_outcome_after_an_unsettled_one_means_nothing_new() -> None:
    target = await Target.made()
    await target.publish(b"a", b"b")
    await target.dispose(0, 1, settled=False)
    await target.dispose(0, 1)
    await target.dispose(1)
    assert target.settled == {1: ACK, 2: ACK}
    await target.publish(b"c")
    why = performatives.ERROR.encode(condition="amqp:not-allowed", description="too large")
    await target.dispose(2, state=performatives.REJECTED.encode(error=why), settled=False)
    await target.dispose(2, state=None)
    assert target.channel.rejection == "too large"


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (1, None),
        (0, 1),
        (1_000_000, None),
        (2**31 - 1, None),
        (2**32 - 1, 1),
        (0, 2**32 - 1),
        (5, 4),
        (2**31, None),
        (2**32 - 1, None),
    ],
)
async def test_outcomes_of_what_wasnt_sent(first: int, last: int | None) -> None:
    """One message is sent, and another waits for credit."""
    target = await Target.made(credit=1)
    await target.publish(b"a", b"waits")
    await target.dispose(first, last)
    if first >= 2**31 and last is None:  # which is before all
        assert target.settled == {}
    else:
        assert target.peer.error == "broken AMQP 1.0: an outcome of a message that wasn't sent"


async def test_outcomes_of_the_other_direction_mean_nothing() -> None:
    target = await Target.made()
    await target.publish(b"a")
    await target.dispose(0, role=False)
    await target.dispose(77, role=False)
    assert target.settled == {}


async def test_delivery_ids_and_counts_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do at 2^32."""
    monkeypatch.setattr("agent.amqp10.sending._SERIAL", 8)
    monkeypatch.setattr("agent.amqp10.session._SERIAL", 8)
    target = await Target.made(credit=0)
    for first in range(0, 21, 3):
        target.peer.flow(handle=0, delivery_count=first % 8, link_credit=3, next_incoming=first % 8)
        await target.publish(b"x", b"x", b"x")
        ids = [(first + each) % 8 for each in range(3)]
        written = [each["delivery_id"] for each in target.transfers()]
        assert written == ids
        await target.dispose(ids[2])
        await target.dispose(ids[0], ids[1])
    assert target.settled == dict.fromkeys(range(1, 22), ACK)


@pytest.mark.parametrize("limit", [1, 100])
async def test_a_message_that_is_too_large_closes_its_channel_as_0_9_1_does(limit: int) -> None:
    target = await Target.made(credit=0, attach={"max_message_size": limit})
    await target.publish(b"x", b"x" * (limit + 1), b"behind")
    error = target.channel.closed.result()
    assert isinstance(error, ChannelClosedError) and error.code == 406
    assert str(error) == (f"PRECONDITION_FAILED - message size {limit + 1} is larger than configured max size {limit}")
    target.peer.flow(handle=0, delivery_count=0, link_credit=10)
    assert [each.name for each in target.peer.heard()] == ["end"]


@pytest.mark.parametrize(
    ("body", "is_bare", "why"),
    [
        (b"no message", True, "no AMQP 1.0 section begins with 0x6e"),
        (message(b"x")[:-1], True, "cut off"),
        (b"\x00\x53\x72\xd1\x00\x02\x00\x00\x00\x01\xff\xfc" + b"\x40" * 0x1FFFC, True, "message annotations of"),
        (b"\x00\x53\x72\xc1\x02\x01\x40" + message(b"x"), True, "a key without a value"),
    ],
)
async def test_a_message_that_cant_be_written_closes_its_channel_and_nothing_else(
    body: bytes, why: str, *, is_bare: bool
) -> None:
    """The data path finds out then which one it is."""
    target = await Target.made(is_bare=is_bare)
    other = await target.peer.begin(channel=1)
    headers = Properties(HEADERS, ((HEADERS, encode_table((("x-shovelled", text("x")),))),)).write()
    await target.publish(body, properties=headers)
    error = target.channel.closed.result()
    assert isinstance(error, ChannelClosedError) and error.code == 406
    assert str(error).startswith("PRECONDITION_FAILED - ") and why in str(error)
    assert other.is_usable


async def test_no_more_waits_than_is_allowed() -> None:
    """Whoever it is read from is held back, until there is credit."""
    target = await Target.made(credit=0)
    part = b"x" * (MOST_WAITING // 4)
    held = []
    feeder = (await Source.made()).peer.wire
    target.peer.wire.fed_by(feeder)
    for _ in range(5):
        await target.publish(part)
        held.append(feeder.inbound.is_held)
    assert held == [False, False, False, False, True]
    target.peer.flow(handle=0, delivery_count=0, link_credit=5)
    assert not feeder.inbound.is_held
    assert len(whole(target.transfers())) == 5


@pytest.mark.parametrize(
    ("credit", "window", "consumers"),
    [(5, MUCH, 1), (0, MUCH, 0), (None, MUCH, 0), (5, 0, 0)],
)
def test_a_look_shows_if_the_peer_takes_messages(credit: int | None, window: int, consumers: int) -> None:
    async def scenario() -> None:
        peer = await Peer.made().open()
        channel = await peer.begin(window=window)
        asked = channel.ask(methods.QUEUE_DECLARE, queue="q", passive=True)
        await turn()
        for _ in range(3):  # says it again and again
            peer.attach(is_source=False)
        if credit is not None:
            peer.flow(handle=0, delivery_count=0, link_credit=credit, window=window)
        await turn()
        assert asked.done() is bool(consumers)
        await asyncio.sleep(BLOCKED_AFTER * 1.1)
        assert (await asked)["consumers"] == consumers
        assert not peer.wire.closed.done()

    in_virtual_time(scenario())


def test_a_look_that_ends_before_credit_comes_has_one_answer() -> None:
    async def scenario() -> None:
        peer = await Peer.made().open()
        channel = await peer.begin()
        asked = channel.ask(methods.QUEUE_DECLARE, queue="q", passive=True)
        await turn()
        peer.attach(is_source=False)
        peer.say(performatives.END)
        await asyncio.sleep(BLOCKED_AFTER * 1.1)
        with pytest.raises(ChannelClosedError):
            await asked
        assert not peer.wire.closed.done()

    in_virtual_time(scenario())


def test_a_destination_without_credit_is_shown_as_blocked_until_it_gives_some() -> None:
    async def scenario() -> None:
        target = await Target.made(credit=1)
        wire = target.peer.wire
        await target.publish(b"a")
        await asyncio.sleep(10)
        assert wire.blocked is None
        await target.publish(b"b")
        await asyncio.sleep(BLOCKED_AFTER * 0.9)
        assert wire.blocked is None
        await asyncio.sleep(BLOCKED_AFTER * 0.2)
        shown: str | None = wire.blocked
        assert shown == "the broker gives no credit: its queue is full, or it has an alarm"
        target.peer.flow(handle=0, delivery_count=1, link_credit=1, next_incoming=1)
        await turn()
        assert wire.blocked is None
        assert len(target.transfers()) == 2
        await target.peer.lose()

    in_virtual_time(scenario())


def test_a_peer_that_is_wanted_to_hear_something_hears_it_not_too_often() -> None:
    async def scenario(idle: int | None) -> int:
        target = await Target.made(open_with={"idle_time_out": idle})
        await asyncio.sleep(60)
        target.peer.heard()
        beats = target.peer.beats
        await target.peer.lose()
        await asyncio.sleep(60)
        target.peer.heard()
        assert beats == target.peer.beats
        return beats

    assert in_virtual_time(scenario(None)) == 0
    assert in_virtual_time(scenario(0)) == 0
    assert in_virtual_time(scenario(20_000)) == 7
    assert in_virtual_time(scenario(1)) == 121


@pytest.mark.parametrize("size", [0, 1, 511])
async def test_a_peer_that_takes_no_frames_isnt_spoken_to(size: int) -> None:
    peer = (await Target.made()).peer.made()
    await peer.log_in()
    peer.say(performatives.OPEN, container_id="peer", max_frame_size=size)
    await turn()
    assert peer.error == f"broken AMQP 1.0: frames of {size} bytes: AMQP allows no fewer than 512"
    await asyncio.wait([peer.opening])
    peer.opening.exception()


@pytest.mark.parametrize(
    ("performative", "values"),
    [
        (performatives.FLOW, {"next_incoming_id": 0, "incoming_window": MUCH, "next_outgoing_id": 0,
                              "outgoing_window": MUCH, "handle": 0, "link_credit": 5, "echo": True}),
        (performatives.DISPOSITION, {"role": True, "first": 0, "state": performatives.ACCEPTED.encode()}),
    ],
)  # fmt: skip
async def test_a_peer_that_reads_none_of_its_answers_is_left(
    performative: Performative, values: dict[str, Any]
) -> None:
    target = await Target.made()
    await target.publish(b"a")
    target.peer.translator.pause_writing()
    asked = performatives.frame(0, performative.encode(**values)) * 1_000
    rounds = 0
    while not target.peer.wire.closed.done():
        target.peer.feed(asked)
        rounds += 1
        assert rounds < 200, "it takes any number of them"
    assert target.peer.error == "broken AMQP 1.0: the peer reads none of the answers that it asks for"
    assert len(target.peer.socket.written) < 2 * MOST_UNREAD


async def test_a_peer_that_reads_late_is_not() -> None:
    target = await Target.made()
    await target.publish(b"a")
    unsettled = performatives.frame(
        0, performatives.DISPOSITION.encode(role=True, first=0, state=performatives.ACCEPTED.encode())
    )
    for _ in range(100):
        target.peer.translator.pause_writing()
        target.peer.feed(unsettled * 1_000)
        target.peer.translator.resume_writing()
    assert not target.peer.wire.closed.done()


@pytest.mark.parametrize("items", [b"\x40", b"\xa1\x00", b"\x00\x44\x40", b"\xc0\x01\x00"])
@pytest.mark.parametrize("code", [0xD0, 0xD1, 0xF0])
async def test_what_is_much_larger_than_any_broker_says_isnt_read(items: bytes, code: int) -> None:
    """Each of its values takes a microsecond, of all links."""
    target = await Target.made()
    content = items * (200_000 // len(items))
    properties = (
        bytes((code,)) + (len(content) + 4).to_bytes(4, "big") + (len(content) // len(items)).to_bytes(4, "big")
    )
    fields = b"\xa1\x01n\x43\x41" + b"\x40" * 10 + properties + content
    attach = b"\x00\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big") + (14).to_bytes(4, "big") + fields
    target.peer.feed(performatives.frame(0, attach))
    assert "bytes: at most 32768 are read" in target.peer.error


def large(code: int, count: int, content: bytes) -> bytes:
    return bytes((code,)) + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content
