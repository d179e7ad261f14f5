"""What the downstream says of publishes, in any order, and what upstream hears: each delivery once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.publish_tracker import MOST_UNSETTLED
from agent.amqp.data.quarantined import Room
from agent.amqp.data.refused import FIRST_PAUSE, LONGEST_PAUSE
from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.refusal_texts import largest_taken
from agent.core import fields
from agent.core.links.refusals import COMES_BACK_WITHIN, LONGEST, SHORTEST, SPARINGLY
from agent.core.model import AckMode
from agent.core.rules.hops import RECEIVED_FROM, received_entry
from tests.unit.amqp.wire.link import HERE, TO_EXCHANGE, Link, Sent, Settled, feed, turn, with_table

VISITED = with_table((RECEIVED_FROM, fields.array(received_entry("u", "x", redelivered=False, upstream=HERE))))
UNFIT = Properties(HEADERS, ())


def unexplained(link: Link) -> int:
    counts = link.counts
    told = counts.forwarded + sum(counts.dropped.values()) + sum(counts.quarantined.values()) + counts.given_back
    return counts.taken - told - link.target.unsettled


class Brokers(RuleBasedStateMachine):
    """An upstream that closes the channel on whoever settles twice; a downstream that answers in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.link = self._run(Link.made())
        self.last = 0
        self.numbers = 0
        self.settled = Settled.of(set())
        self.outstanding: dict[int, int] = {}  # publish number -> tag
        self.taken: set[int] = set()
        self.not_taken: set[int] = set()
        self.withholds = False

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _deliver(self, properties: Properties, count: int) -> range:
        tags = range(self.last + 1, self.last + 1 + count)
        self.last += count
        self.settled.unsettled |= set(tags)
        self._run(self.link.deliver(*(Sent(tag, properties=properties, body=b"b") for tag in tags)))
        return tags

    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        for tag in self._deliver(Properties(0, ()), count):
            self.numbers += 1
            self.outstanding[self.numbers] = tag

    @rule(count=st.integers(1, 3))
    def deliver_what_was_here_before(self, count: int) -> None:
        self.taken |= set(self._deliver(VISITED, count))

    @rule(count=st.integers(1, 2))
    def deliver_what_nobody_can_read(self, count: int) -> None:
        self.not_taken |= set(self._deliver(UNFIT, count))

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), multiple=st.booleans(), taken=st.booleans())
    def answer(self, data: st.DataObject, multiple: bool, taken: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.outstanding)))
        named = [n for n in self.outstanding if n <= number] if multiple else [number]
        (self.taken if taken else self.not_taken).update(self.outstanding.pop(n) for n in named)
        method = methods.BASIC_ACK if taken else methods.BASIC_NACK
        self._run(self.link.answer(method, delivery_tag=number, multiple=multiple))

    @rule(seconds=st.sampled_from([0.05, 0.3, FIRST_PAUSE, LONGEST]))
    def time_passes(self, seconds: float) -> None:
        self.link.clock.pass_by(seconds)
        self._run(turn())

    @rule()
    def withhold(self) -> None:
        self.link.target.withhold()
        self.withholds = True

    @rule()
    def go_on(self) -> None:
        self.link.target.go_on()
        self._run(turn())
        self.withholds = False

    @invariant()
    def each_is_settled_once_and_rightly(self) -> None:
        before = set(self.settled.acknowledged)
        self.settled.hear(self.link)
        assert self.settled.acknowledged <= self.taken
        assert not self.withholds or self.settled.acknowledged == before
        assert self.settled.returned <= self.not_taken
        assert not self.link.upstream.closed.done()
        assert self.link.target.confirms.in_flight == len(self.outstanding)

    @invariant()
    def what_the_upstream_waits_for_is_known(self) -> None:
        self.settled.hear(self.link)
        assert self.link.target.confirms.outstanding == len(self.settled.unsettled)

    @invariant()
    def each_that_was_taken_is_accounted_for(self) -> None:
        assert self.link.counts.taken == self.last
        assert unexplained(self.link) == 0

    @invariant()
    def what_waits_to_be_returned_holds_up_nothing(self) -> None:
        if not self.outstanding and not self.withholds:
            assert self.settled.acknowledged == self.taken

    def teardown(self) -> None:
        self.go_on()
        for number in tuple(self.outstanding):
            self.taken.add(self.outstanding.pop(number))
            self._run(self.link.answer(methods.BASIC_ACK, delivery_tag=number))
        for _ in range(20):  # of what was refused a few go back at a time
            self.link.clock.pass_by(2 * LONGEST_PAUSE)
            self._run(turn())
        self.settled.hear(self.link)
        assert not self.settled.unsettled
        assert self.link.target.oldest_unconfirmed is None
        self.loop.close()


TestBrokers = Brokers.TestCase
TestBrokers.settings = settings(max_examples=60)


async def refuse(link: Link, tag: int) -> None:
    await link.deliver(Sent(tag, redelivered=tag > 1))
    await link.answer(methods.BASIC_NACK, delivery_tag=tag)


async def test_what_is_refused_and_not_noted_goes_back_later_and_later() -> None:
    """All links together have too many; nobody recognizes it when it comes again."""
    link = await Link.made(held=HeldBuffers(0, Room(0, most_noted=0)))
    waited: list[float] = []
    for tag in range(1, 10):
        await refuse(link, tag)
        assert link.settled() == []
        began = link.clock.now
        while not (settled := link.settled()):
            link.clock.pass_by(SHORTEST)
            await turn()
        assert [(method.name, dict(method)["delivery_tag"]) for method in settled] == [("Basic.Nack", tag)]
        waited.append(link.clock.now - began)
    longest = COMES_BACK_WITHIN
    assert waited == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, longest, longest, longest], abs=SHORTEST)
    assert link.counts.refused == 9
    await link.deliver(Sent(10), Sent(11))
    await link.answer(methods.BASIC_ACK, delivery_tag=11, multiple=True)
    await refuse(link, 12)
    link.clock.pass_by(longest)
    await refuse(link, 13)
    link.settled()
    link.clock.pass_by(SHORTEST)
    await turn()
    assert len(link.settled()) == 1, "more was taken than refused: it begins anew"


async def test_what_is_not_noted_goes_back_seldom_where_each_return_is_counted() -> None:
    """Also while others get through: a broker that drops what came back 20 times would have dropped it in seconds."""
    link = await Link.made(held=HeldBuffers(0, Room(0, most_noted=0)), returns_are_counted=True)
    for tag in (1, 3, 5):
        await refuse(link, tag)
        await link.deliver(Sent(tag + 1))
        await link.answer(methods.BASIC_ACK, delivery_tag=tag + 1)
        link.settled()
        link.clock.pass_by(SPARINGLY - 1)
        await turn()
        assert link.settled() == []
        link.clock.pass_by(2)
        await turn()
        assert [method.name for method in link.settled()] == ["Basic.Nack"]


async def test_once_it_gets_through_the_next_goes_back_soon() -> None:
    link = await Link.made()
    for tag in range(1, 10):
        await refuse(link, tag)
        link.clock.pass_by(LONGEST)
        await turn()
    await link.deliver(Sent(10, redelivered=True))
    await link.answer(methods.BASIC_ACK, delivery_tag=10)
    await refuse(link, 11)
    link.settled()
    link.clock.pass_by(SHORTEST)
    await turn()
    assert len(link.settled()) == 1


async def test_what_is_refused_lives_long_where_each_return_is_counted() -> None:
    """A broker that drops what came back 20 times: refused all the time, it would be gone within two minutes."""
    link = await Link.made(returns_are_counted=True)
    began = link.clock.now
    for tag in range(1, 21):
        await refuse(link, tag)
        while not link.settled():
            link.clock.pass_by(1.0)
            await turn()
    assert link.clock.now - began == pytest.approx(20 * SPARINGLY, abs=30.0)


async def test_many_that_are_refused_and_not_noted_go_back_together() -> None:
    link = await Link.made(held=HeldBuffers(0, Room(0, most_noted=0)))
    await link.deliver(*(Sent(tag) for tag in range(1, 101)))
    await link.answer(methods.BASIC_NACK, delivery_tag=100, multiple=True)
    assert link.target.confirms.held == 100
    link.clock.pass_by(SHORTEST)
    await turn()
    assert len(link.settled()) == 100
    assert link.target.confirms.held == 0


@pytest.mark.parametrize("ack_mode", AckMode)
async def test_when_upstream_hears(ack_mode: AckMode) -> None:
    link = await Link.made(ack_mode=ack_mode)
    await link.deliver(*(Sent(tag) for tag in range(1, 4)))
    at_once = [(method.name, dict(method)) for method in link.settled()]
    await link.answer(methods.BASIC_ACK, delivery_tag=3, multiple=True)
    then = [(method.name, dict(method)) for method in link.settled()]
    together = [("Basic.Ack", {"delivery_tag": 3, "multiple": True})]
    assert (at_once, then) == {
        AckMode.ON_CONFIRM: ([], together),
        AckMode.ON_PUBLISH: (together, []),
        AckMode.NO_ACK: ([], []),
    }[ack_mode]
    assert link.counts.forwarded == 3


async def test_a_large_message_is_acknowledged_on_publish_only_when_all_of_it_is_written() -> None:
    link = await Link.made(ack_mode=AckMode.ON_PUBLISH)
    data = link.delivery(Sent(1, body=bytes(3 * 1024 * 1024)))
    feed(link.upstream, data[:-1])
    await turn()
    assert link.settled() == []
    feed(link.upstream, data[-1:])
    await turn()
    assert len(link.settled()) == 1


@pytest.mark.parametrize("ack_mode", AckMode)
async def test_nothing_is_published_on_a_channel_that_is_closed_nor_acknowledged(ack_mode: AckMode) -> None:
    link = await Link.made(ack_mode=ack_mode)
    await link.answer(methods.CHANNEL_CLOSE, code=404, text="NOT_FOUND - no exchange", class_id=60, method_id=40)
    link.down.taken()
    await link.deliver(Sent(1, body=b"x"), Sent(2, properties=VISITED), Sent(3, properties=UNFIT))
    assert (link.down.taken(), link.up.taken()) == (b"", b"")
    assert not link.upstream.closed.done()


async def test_nothing_is_settled_on_a_channel_that_is_being_closed() -> None:
    """It would be a method on a channel that isn't open: the end of everyone's connection."""
    link = await Link.made()
    await link.deliver(*(Sent(tag) for tag in range(1, 5)))
    await link.answer(methods.BASIC_NACK, delivery_tag=1)
    closing = asyncio.create_task(link.out.close())
    await turn()
    assert [method.name for method in link.settled()] == ["Channel.Close"]
    await link.answer(methods.BASIC_ACK, delivery_tag=4, multiple=True)
    link.clock.pass_by(LONGEST)
    await turn()
    assert link.settled() == []
    feed(link.upstream, frames.frame(frames.METHOD, link.out.number, methods.CHANNEL_CLOSE_OK.encode()))
    await closing
    await link.answer(methods.BASIC_ACK, delivery_tag=4)
    assert link.settled() == []


async def test_returned_messages_are_counted_and_fall() -> None:
    link = await Link.made()
    number = link.into.number
    returned = frames.frame(frames.METHOD, number, methods.BASIC_RETURN.encode(code=312, text="NO_ROUTE"))
    body = frames.content(number, b"\0\0", bytes(1_000_000), 131_072)
    feed(link.downstream, (returned + body) * 3 + returned + frames.content(number, b"\0\0", b"", 4096))
    assert link.counts.returned == 4
    assert not link.downstream.closed.done()


async def test_how_long_confirms_take_is_measured_once_a_read() -> None:
    link = await Link.made()
    took = link.counts.transfer

    def counted(seconds: float) -> int:
        return list(took.cumulative)[took.bounds.index(seconds)]

    await link.deliver(*(Sent(tag) for tag in range(1, 4)))
    began = link.clock.now
    link.clock.pass_by(0.25)
    await link.deliver(Sent(4), Sent(5))
    assert link.target.oldest_unconfirmed == began
    link.clock.pass_by(0.25)
    await link.answer(methods.BASIC_ACK, delivery_tag=2, multiple=True)
    assert link.target.oldest_unconfirmed == began
    assert took.sum == 0
    await link.answer(methods.BASIC_ACK, delivery_tag=3)
    assert (counted(0.25), counted(0.5), took.sum) == (0, 3, 1.5)
    assert link.target.oldest_unconfirmed == began + 0.25
    link.clock.pass_by(0.25)
    await link.answer(methods.BASIC_ACK, delivery_tag=5, multiple=True)
    assert (counted(0.25), counted(0.5), took.sum) == (0, 5, 2.5)
    waiting = link.target.oldest_unconfirmed
    assert waiting is None


async def test_it_can_be_waited_for_that_nothing_is_in_flight() -> None:
    link = await Link.made()
    await link.target.settled()
    await link.deliver(Sent(1), Sent(2))
    waiting = asyncio.create_task(link.target.settled())
    await link.answer(methods.BASIC_ACK, delivery_tag=2)
    assert not waiting.done()
    await link.answer(methods.BASIC_NACK, delivery_tag=1)
    await waiting


async def test_what_is_known_to_be_too_large_is_not_published() -> None:
    link = await Link.made(largest=1000)
    await link.deliver(Sent(1, body=bytes(1000)), Sent(2, body=bytes(1001)), Sent(3, body=bytes(500_000)))
    assert [len(got.body) for got in link.published()] == [1000]
    assert link.counts.unpublishable == {"too_large": 2}
    link.clock.pass_by(LONGEST)
    await turn()
    assert [dict(method)["delivery_tag"] for method in link.settled()] == [2, 3]


async def test_what_was_too_large_is_tried_again_once_that_is_forgotten() -> None:
    link = await Link.made(largest=1000)
    link.source.forget_largest()
    await link.deliver(Sent(1, body=bytes(1001)), Sent(2, body=bytes(500_000)))
    assert [len(got.body) for got in link.published()] == [1001, 500_000]
    assert link.counts.unpublishable == {}


def test_a_broker_tells_what_it_takes_when_it_refuses_more() -> None:
    said = "PRECONDITION_FAILED - message size 2000000 is larger than configured max size 1048576"
    assert largest_taken(said) == 1048576
    assert largest_taken("PRECONDITION_FAILED - something else") is None


@pytest.mark.parametrize("method", [methods.BASIC_ACK, methods.BASIC_NACK])
@pytest.mark.parametrize(("number", "multiple"), [(0, True), (3, False), (3, True)])
async def test_a_confirm_of_what_was_never_published_acknowledges_nothing(
    method: methods.Method, number: int, *, multiple: bool
) -> None:
    link = await Link.made()
    await link.deliver(Sent(1), Sent(2))
    await link.answer(method, delivery_tag=number, multiple=multiple)
    assert str(link.downstream.closed.result()).startswith(f"broken AMQP: a confirm of publish {number}, of 2 so far")
    assert link.settled() == []


@pytest.mark.parametrize("ack_mode", [AckMode.ON_PUBLISH, AckMode.NO_ACK])
async def test_confirms_that_nothing_waits_for_are_no_news(ack_mode: AckMode) -> None:
    link = await Link.made(ack_mode=ack_mode)
    await link.deliver(Sent(1), Sent(2))
    await link.answer(methods.BASIC_NACK, delivery_tag=1)
    await link.answer(methods.BASIC_ACK, delivery_tag=2, multiple=True)
    assert not link.downstream.closed.done()
    assert (link.counts.forwarded, link.counts.refused) == (2, 0)


async def test_what_can_not_be_published_is_reported_with_its_size_until_it_fits() -> None:
    link = await Link.made(largest=1000)
    assert link.target.trouble == ""
    await link.deliver(Sent(1, body=bytes(1001)), Sent(2, body=bytes(5000)), Sent(3, properties=UNFIT), Sent(4))
    await link.answer(methods.BASIC_NACK, delivery_tag=1)
    report = (
        "3 messages can't be published downstream: 2 larger than it takes (up to 5000 bytes, where 1000 fit), "
        "1 with properties that can't be read"
    )
    refused = "; 1 refused by the destination (is a queue there full?) and tried again, the oldest "
    refused += f"to exchange {TO_EXCHANGE.exchange!r} with key 'key'"
    assert link.target.trouble == report + refused
    link.clock.pass_by(LONGEST)
    assert (link.target.held_unpublishable, link.target.trouble) == (0, report + refused.partition(",")[0]), (
        "they are on their way back, and come again"
    )
    link.clock.pass_by(2 * LONGEST)
    assert link.target.trouble == ""


async def test_what_can_not_be_published_comes_again_less_and_less_often() -> None:
    link = await Link.made(largest=10)
    waited: list[float] = []
    for tag in range(1, 7):
        await link.deliver(Sent(tag, body=bytes(11)))
        began = link.clock.now
        while not link.settled():
            link.clock.pass_by(1.0)
            await turn()
        waited.append(link.clock.now - began)
    assert waited == [5, 10, 20, 40, LONGEST_PAUSE, LONGEST_PAUSE]


async def test_an_upstream_that_minds_no_prefetch_is_left() -> None:
    link = await Link.made()
    link.target.confirms.published(range(1, MOST_UNSETTLED + 1))
    await link.deliver(Sent(1, properties=UNFIT))
    assert "more deliveries than the prefetch allows" in str(link.upstream.closed.result())


async def test_where_nothing_goes_back_it_is_asked_for_another_way() -> None:
    """Of what was refused. What can't be published is held for good."""
    asked: list[int] = []
    link = await Link.made(largest=10, instead_of_return=lambda: asked.append(1))
    await link.deliver(Sent(1), Sent(2, body=bytes(11)), Sent(3))
    await link.answer(methods.BASIC_ACK, delivery_tag=1)
    await link.answer(methods.BASIC_NACK, delivery_tag=2)
    link.clock.pass_by(SHORTEST)
    assert asked == [1]
    link.clock.pass_by(2 * LONGEST_PAUSE)
    await turn()
    assert [method.name for method in link.settled()] == ["Basic.Ack"]
    assert link.target.held_unpublishable == 1
    assert link.target.trouble.startswith("1 message can't be published downstream")
    assert link.target.settled_up_to == 1


async def test_what_is_returned_is_not_settled_although_its_confirm_follows() -> None:
    link = await Link.made()
    link.target.on_returned = link.target.cut_off
    await link.deliver(Sent(1), Sent(2))
    await link.answer(methods.BASIC_ACK, delivery_tag=1)
    number = link.into.number
    returned = frames.frame(frames.METHOD, number, methods.BASIC_RETURN.encode(code=312, text="NO_ROUTE"))
    feed(link.downstream, returned + frames.content(number, b"\0\0", b"", 4096))
    await link.answer(methods.BASIC_ACK, delivery_tag=2)
    assert link.target.settled_up_to == 1


async def test_what_is_not_settled_at_the_end_counts_as_given_back() -> None:
    link = await Link.made()
    await link.deliver(*(Sent(tag, body=b"b") for tag in (1, 2, 3)))
    await link.answer(methods.BASIC_ACK, delivery_tag=1)
    assert (link.counts.taken, link.target.unsettled) == (3, 2)
    link.target.abandon()
    assert (link.counts.given_back, link.target.unsettled) == (2, 0)
    await link.answer(methods.BASIC_ACK, delivery_tag=2)  # its source's broker has it already
    assert link.counts.forwarded == 1
    assert unexplained(link) == 0


async def test_a_delivery_of_which_only_a_part_is_here_is_not_taken_yet() -> None:
    link = await Link.made()
    whole = link.delivery(Sent(1, body=b"body"))
    for upto in range(1, len(whole)):
        link.upstream.get_buffer(-1)[:1] = whole[upto - 1 : upto]
        link.upstream.buffer_updated(1)
        assert (link.counts.taken, unexplained(link)) == (0, 0)
    link.upstream.get_buffer(-1)[:1] = whole[-1:]
    link.upstream.buffer_updated(1)
    assert (link.counts.taken, unexplained(link)) == (1, 0)
