"""A flow is held for as long as its limit says, and shown as limited while that is so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agent.amqp.data.rewriting import Untouched
from agent.amqp.data.splice import Counts
from agent.amqp.wire.inbound import Inbound
from agent.core.links.read_limits import BURST, RateLimit
from agent.links.throttle import SHOWN_FOR, Throttle
from tests.unit.amqp.wire.link import Link, Sent, feed
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


class Reader:
    def __init__(self) -> None:
        self.holders: set[object] = set()
        self.counts: set[bool] = set()
        self.portions: list[int | None] = []

    def hold(self, holder: object, *, counts: bool = False) -> None:
        self.holders.add(holder)
        self.counts.add(counts)

    def release(self, holder: object) -> None:
        self.holders.discard(holder)

    def limit_portions(self, most: int | None) -> None:
        self.portions.append(most)


def throttle(reader: Reader, counts: Counts, *, messages: int | None, acknowledges: bool = True) -> Throttle:
    limit = None if messages is None else RateLimit(messages=messages)
    return Throttle(cast("Inbound", reader), limit, counts, acknowledges=acknowledges)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("acknowledges", [True, False])
def test_it_holds_until_what_was_read_is_paid_for(acknowledges: bool) -> None:
    async def scenario() -> None:
        reader, counts = Reader(), Counts()
        found = throttle(reader, counts, messages=10, acknowledges=acknowledges)
        assert not found.shown
        found.took(5, 0)
        assert (found.is_held, found.shown, reader.counts) == (True, "10 messages/s", {acknowledges})
        await asyncio.sleep(0.3)
        assert found.held_for == pytest.approx(0.3)
        found.took(1, 0)  # of the same read
        await asyncio.sleep(0.25)
        assert reader.holders
        await asyncio.sleep(0.1)
        assert not reader.holders
        assert counts.limited_seconds == pytest.approx(0.6)
        assert (found.shown, found.held_for) == ("10 messages/s", 0.0)
        await asyncio.sleep(SHOWN_FOR)
        assert not found.shown
        found.took(9, 0)
        assert not reader.holders, "a burst"

    in_virtual_time(scenario())


def test_it_reads_small_portions_only_where_more_may_be_here_than_the_limit_allows() -> None:
    async def scenario() -> None:
        reader, limit, lower = Reader(), RateLimit(messages=10), RateLimit(messages=5)
        found = throttle(reader, Counts(), messages=10)
        for each in (limit, lower, limit):
            found.change(each)
        found.end()
        throttle(reader, Counts(), messages=10, acknowledges=False)
        assert reader.portions == [None, None, lower.lump, limit.lump, None, limit.lump]

    in_virtual_time(scenario())


def test_another_limit_holds_at_once_and_none_releases() -> None:
    async def scenario() -> None:
        reader, counts = Reader(), Counts()
        found = throttle(reader, counts, messages=1)
        found.took(50, 0)
        await asyncio.sleep(1)
        found.change(RateLimit(messages=49))
        assert reader.holders, "what is left is paid for at the new rate"
        await asyncio.sleep(0.9)
        assert reader.holders
        await asyncio.sleep(0.2)
        assert not reader.holders
        found.took(500, 0)
        assert reader.holders
        found.change(None)
        assert not reader.holders
        found.took(10**6, 0)
        assert not reader.holders
        assert counts.limited_seconds == pytest.approx(2)
        found.change(RateLimit(messages=100))
        found.took(200, 0)
        assert reader.holders

    in_virtual_time(scenario())


def test_after_its_end_it_holds_nothing() -> None:
    async def scenario() -> None:
        reader, counts = Reader(), Counts()
        found = throttle(reader, counts, messages=1)
        found.took(5, 0)
        found.end()
        assert not reader.holders
        found.took(5, 0)
        found.change(RateLimit(messages=2))
        assert not reader.holders

    in_virtual_time(scenario())


def on_a_link(scenario: Callable[[Link, Throttle], Awaitable[None]], limit: RateLimit) -> None:
    async def run() -> None:
        link = await Link.made(rewriter=Untouched())
        found = Throttle(link.upstream.inbound, limit, link.counts, acknowledges=True)
        link.source.on_published = found.took
        await scenario(link, found)

    in_virtual_time(run())


def test_what_comes_while_it_is_held_waits_is_counted_and_loses_nothing() -> None:
    async def scenario(link: Link, found: Throttle) -> None:
        sent = [link.delivery(Sent(tag, body=b"b%d" % tag)) for tag in range(1, 101)]
        feed(link.upstream, b"".join(sent[:10]))
        assert len(link.published()) == 0, "what one read brings is written at the end of the turn"
        await asyncio.sleep(0)
        assert len(link.published()) == 10
        for each in sent[10:]:
            await asyncio.sleep(0)
            feed(link.upstream, each)
        await asyncio.sleep(0.5)
        assert link.upstream.inbound.unread_deliveries(link.out.number) == 90
        assert link.published() == []
        assert link.upstream.inbound.counts_all
        await asyncio.sleep(0.6)
        assert [got.body for got in link.published()] == [b"b%d" % tag for tag in range(11, 101)]
        assert found.is_held
        await asyncio.sleep(8.8)
        assert found.is_held
        await asyncio.sleep(0.2)
        assert found.held_for == 0
        assert link.counts.limited_seconds == pytest.approx(10.0, abs=0.1)

    on_a_link(scenario, RateLimit(messages=10))


LIMITS = st.builds(
    RateLimit,
    messages=st.none() | st.integers(1, 2_000),
    bytes=st.none() | st.integers(1_000, 200_000),
)


@given(former=LIMITS, limit=LIMITS, sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=5))
@example(former=RateLimit(), limit=RateLimit(messages=1), sizes=[1])
@example(former=RateLimit(messages=2_000), limit=RateLimit(messages=10), sizes=[1])
@example(former=RateLimit(bytes=200_000), limit=RateLimit(bytes=1_000), sizes=[10, 3_000])
def test_a_lowered_limit_holds_for_what_was_sent_ahead(former: RateLimit, limit: RateLimit, sizes: list[int]) -> None:
    """At no time more than a burst and the rate since then, beyond a message or what is read at once."""
    assume(former != limit)

    async def scenario(link: Link, found: Throttle) -> None:
        feed(link.upstream, link.delivery(Sent(1, body=b"1")))
        await asyncio.sleep(1.5)
        link.published()
        found.change(limit)
        bodies = [bytes(size) for size in sizes * 400]
        waiting = b"".join(link.delivery(Sent(tag, body=body)) for tag, body in enumerate(bodies, start=2))
        feed(link.upstream, waiting)
        messages = octets = 0
        largest = max(sizes)
        for step in range(60):
            await asyncio.sleep(0.25)
            came = link.published()
            messages, octets = messages + len(came), octets + sum(len(got.body) for got in came)
            seconds = BURST + 0.25 * (step + 1)
            if limit.messages is not None:
                assert messages <= limit.messages * (seconds + BURST / 4) + 1
            if limit.bytes is not None:
                assert octets <= limit.bytes * (seconds + BURST / 4) + largest
        seconds, total = 15.0, sum(map(len, bodies))
        if limit.messages is not None and limit.bytes is None:
            assert messages >= min(len(bodies), int(limit.messages * seconds))
        if limit.bytes is not None and limit.messages is None:
            assert octets >= min(total, limit.bytes * seconds)

    on_a_link(scenario, former)
