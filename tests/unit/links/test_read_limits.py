"""When another prefetch is due, and how long a connection is held for a rate limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agent.amqp.data.rewriting import Destination, Untouched
from agent.amqp.data.splice import Counts
from agent.amqp.wire.inbound import Inbound
from agent.core.links import read_limits
from agent.core.links.confirms import StreamOffsets
from agent.core.links.read_limits import BURST, RateLimit
from agent.links.flow_options import FlowOptions, PathMemory
from agent.links.read_limits import SHOWN_FOR, Throttle, Window
from tests.unit.amqp.wire.link import Link, Sent, feed
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


async def filled(*, most: int) -> tuple[Window, list[int]]:
    """A flow whose messages all get nowhere, up to so many; and what its prefetch was."""
    link = await Link.made(rewriter=Untouched())
    window = Window(FlowOptions("q", "tag", Destination("x")), PathMemory(), Counts(), link.clock, for_unpublishable=0)
    window.target = link.target
    held, sizes = 0, []
    while True:
        window.current = window.prefetch
        sizes.append(window.current)
        while held < min(window.current, most):
            held += 1
            link.target.refuse(held, "too_large", 0)
        await asyncio.sleep(0)
        link.clock.pass_by(0.01)
        if window.better(link.clock.now) is None:
            return window, sizes


async def test_the_prefetch_grows_past_what_gets_nowhere() -> None:
    window, sizes = await filled(most=20_000)
    assert window.current >= 20_000 + read_limits.START_PREFETCH / 2
    assert len(sizes) < 10
    assert not window.is_filled


async def test_it_ends_where_a_broker_would_count_no_more() -> None:
    window, sizes = await filled(most=1_000_000)
    assert sizes[-1] == window.current == read_limits.START_PREFETCH + read_limits.MOST_HELD
    assert window.is_filled


async def test_consumers_that_follow_one_another_hold_no_more_together_than_a_broker_counts() -> None:
    link = await Link.made(rewriter=Untouched())
    window = Window(FlowOptions("q", "tag", Destination("x")), PathMemory(), Counts(), link.clock, for_unpublishable=0)
    window.target = link.target
    held = 0
    for _ in range(20):  # the link pauses and goes on
        window.begin()
        for _ in range(window.current if held < read_limits.LARGEST_PREFETCH - 1 else 1):
            held += 1
            link.target.refuse(held, "too_large", 0)
        link.clock.pass_by(0.001)  # they go back to their source later
        window.better(link.clock.now)
    assert read_limits.MOST_HELD <= window.unsettled <= read_limits.LARGEST_PREFETCH + 20
    assert window.current == 1


async def test_a_stream_has_one_consumer_whose_prefetch_stays() -> None:
    link = await Link.made(rewriter=Untouched())
    options = FlowOptions("q", "tag", Destination("x"), prefetch=10, offsets=StreamOffsets())
    window = Window(options, PathMemory(), Counts(), link.clock, for_unpublishable=0)
    window.target = link.target
    window.begin()
    for tag in range(1, window.current + 1):
        link.target.refuse(tag, "too_large", 0)
        assert window.is_filled is (tag == window.current)
    link.clock.pass_by(1.0)
    assert window.better(link.clock.now) is None


@pytest.mark.parametrize(("kept", "expected"), [(read_limits.LARGEST_PREFETCH, 4_000), (1_000, 1_000), (1, 1)])
async def test_no_more_of_a_stream_is_read_ahead_than_could_be_kept(kept: int, expected: int) -> None:
    options = FlowOptions("q", "tag", Destination("x"), prefetch=read_limits.NEAR_PREFETCH, offsets=StreamOffsets())
    window = Window(options, PathMemory(most_kept=kept), Counts(), lambda: 0.0, for_unpublishable=0)
    assert window.prefetch == expected


async def limited(limit: RateLimit | None, *, is_quorum: bool = False, asked: int | None = None) -> tuple[Link, Window]:
    link = await Link.made(rewriter=Untouched())
    options = FlowOptions("q", "tag", Destination("x"), rate_limit=limit, is_quorum=is_quorum, prefetch=asked)
    window = Window(options, PathMemory(), link.counts, link.clock, for_unpublishable=0)
    window.target = link.target
    window.begin()
    return link, window


def moved(link: Link, window: Window, *, messages: int, size: int) -> int | None:
    link.clock.pass_by(1)
    link.counts.forwarded += messages
    link.counts.bytes += messages * size
    return window.better(link.clock.now)


@pytest.mark.parametrize(("asked", "expected"), [(7, None), (None, 4_000)])
async def test_a_size_that_is_given_stays_whatever_goes_through(asked: int | None, expected: int | None) -> None:
    link, window = await limited(None, asked=asked)
    window.round_trip = 1.0
    assert moved(link, window, messages=1_000, size=100) == expected


@pytest.mark.parametrize("asked", [None, 5_000])
async def test_with_a_rate_limit_no_more_is_sent_ahead_than_a_burst(asked: int | None) -> None:
    link, window = await limited(RateLimit(messages=50), asked=asked)
    assert (window.prefetch, window.current) == (50, 50)
    assert moved(link, window, messages=50, size=10) is None, "not for a prefetch that the limit takes back"


async def test_with_a_limit_of_bytes_it_is_by_what_messages_are_large() -> None:
    link, window = await limited(RateLimit(bytes=1_000_000), asked=5_000)
    assert window.prefetch == 15, "before any has come"
    assert moved(link, window, messages=10, size=1_000) == 1_000
    window.begin()
    assert moved(link, window, messages=900, size=1_100) is None, "few, geometric steps"
    assert moved(link, window, messages=10, size=100_000) == 10


@pytest.mark.parametrize("is_quorum", [True, False])
async def test_a_changed_limit_changes_it_but_never_makes_it_smaller_on_a_quorum_queue(is_quorum: bool) -> None:
    link, window = await limited(RateLimit(messages=1_000), asked=5_000, is_quorum=is_quorum)
    window.limit = RateLimit(messages=10)
    assert moved(link, window, messages=10, size=1) == (None if is_quorum else 10)
    window.begin()
    window.limit = None
    assert moved(link, window, messages=10, size=1) == 5_000


@pytest.mark.parametrize(
    "kept", [{"keeps_consumer": True}, {"offsets": StreamOffsets(), "prefetch": read_limits.NEAR_PREFETCH}]
)
async def test_a_consumer_that_stays_keeps_its_prefetch_and_the_next_session_knows_the_size(
    kept: dict[str, Any],
) -> None:
    link = await Link.made(rewriter=Untouched())
    options = FlowOptions("q", "tag", Destination("x"), rate_limit=RateLimit(bytes=1_000_000), **kept)
    path = PathMemory(prefetch=read_limits.NEAR_PREFETCH)
    window = Window(options, path, link.counts, link.clock, for_unpublishable=0)
    window.target = link.target
    window.begin()
    assert window.current == 976, "messages may be small"
    assert moved(link, window, messages=10, size=100_000) is None
    assert (window.current, window.prefetch) == (976, 10)
    assert Window(options, path, link.counts, link.clock, for_unpublishable=0).prefetch == 10


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
