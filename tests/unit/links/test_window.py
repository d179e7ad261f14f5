from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.amqp.data.rewriting import Destination, Untouched
from agent.amqp.data.splice import Counts
from agent.core.links import read_limits
from agent.core.links.confirms import StreamOffsets
from agent.core.links.read_limits import RateLimit
from agent.links.flow_options import FlowOptions, PathMemory
from agent.links.window import Window
from tests.unit.amqp.wire.link import Link


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
