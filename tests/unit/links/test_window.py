from __future__ import annotations

import asyncio

from agent.amqp.data.rewriting import Destination, Untouched
from agent.amqp.data.splice import Counts
from agent.core.links import prefetch
from agent.core.links.stream_offsets import StreamOffsets
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
    assert window.current >= 20_000 + prefetch.START / 2
    assert len(sizes) < 10
    assert not window.is_filled


async def test_it_ends_where_a_broker_would_count_no_more() -> None:
    window, sizes = await filled(most=1_000_000)
    assert sizes[-1] == window.current == prefetch.START + prefetch.MOST_HELD
    assert window.is_filled


async def test_consumers_that_follow_one_another_hold_no_more_together_than_a_broker_counts() -> None:
    link = await Link.made(rewriter=Untouched())
    window = Window(FlowOptions("q", "tag", Destination("x")), PathMemory(), Counts(), link.clock, for_unpublishable=0)
    window.target = link.target
    held = 0
    for _ in range(20):  # the link pauses and goes on
        window.begin()
        for _ in range(window.current if held < prefetch.LARGEST - 1 else 1):
            held += 1
            link.target.refuse(held, "too_large", 0)
        link.clock.pass_by(0.001)  # they go back to their source later
        window.better(link.clock.now)
    assert prefetch.MOST_HELD <= window.unsettled <= prefetch.LARGEST + 20
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
