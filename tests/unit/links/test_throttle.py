"""A flow is held for as long as its limit says, and shown as limited while that is so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from agent.amqp.data.rewriting import Untouched
from agent.amqp.data.splice import Counts
from agent.amqp.wire.inbound import Inbound
from agent.core.links.rate_limit import RateLimit
from agent.links.throttle import SHOWN_FOR, Throttle
from tests.unit.amqp.wire.link import Link, Sent, feed
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


class Reader:
    def __init__(self) -> None:
        self.holders: set[object] = set()
        self.counts: set[bool] = set()

    def hold(self, holder: object, *, counts: bool = False) -> None:
        self.holders.add(holder)
        self.counts.add(counts)

    def release(self, holder: object) -> None:
        self.holders.discard(holder)


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


def on_a_link(scenario: Callable[[Link, Throttle], Awaitable[None]], *, messages: int) -> None:
    async def run() -> None:
        link = await Link.made(rewriter=Untouched())
        found = Throttle(link.upstream.inbound, RateLimit(messages=messages), link.counts, acknowledges=True)
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

    on_a_link(scenario, messages=10)
