"""A bound on what is taken: exactly so many go on, and the rest goes back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agent.amqp.data.publish_tracker import MOST_UNSETTLED
from agent.amqp.data.rewriting import Untouched
from agent.amqp.wire import methods
from agent.core.links.refusals import SHORTEST
from tests.unit.amqp.wire.link import Link, Sent, Settled, turn

BODIES = [b"", b"b", bytes(200_000)]


async def limited(limit: int, *, largest: int | None = None) -> tuple[Link, list[bool]]:
    """And a list that grows whenever the last that might be taken is noticed."""
    link, exhausted = await Link.made(rewriter=Untouched(), limit=limit, largest=largest), []
    link.source.on_exhausted = lambda: exhausted.append(True)
    link.target.on_held = link.source.allow
    return link, exhausted


def sent(tags: Iterable[int], body: bytes = b"b") -> list[Sent]:
    return [Sent(tag, key=f"{tag}", body=body) for tag in tags]


async def refuse(link: Link, number: int) -> None:
    """It is returned soon after."""
    await link.answer(methods.BASIC_NACK, delivery_tag=number)
    link.clock.pass_by(SHORTEST)
    await turn()


def keys(link: Link) -> list[str]:
    return [got.key for got in link.published()]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("limit", [1, 3, 40])
async def test_exactly_as_many_go_on_as_may_be_taken(limit: int, body: bytes) -> None:
    link, exhausted = await limited(limit)
    await link.deliver(*sent(range(1, 61), body))
    assert keys(link) == [f"{tag}" for tag in range(1, limit + 1)]
    assert exhausted == [True]
    assert link.source.is_exhausted
    for number in range(1, limit + 1):
        await link.answer(methods.BASIC_ACK, delivery_tag=number)
    settled = Settled.read(link, 60)
    assert (settled.acknowledged, settled.returned) == (set(range(1, limit + 1)), set())
    assert link.counts.forwarded == limit
    assert link.counts.bytes == limit * len(body)


async def test_what_is_refused_does_not_count_and_others_are_taken_in_its_place() -> None:
    link, exhausted = await limited(2)
    await link.deliver(*sent(range(1, 5)))
    await refuse(link, 1)
    assert not link.source.is_exhausted
    assert Settled.read(link, 4).returned == {1, 3, 4}  # the channel can't acknowledge beyond them otherwise
    await link.deliver(*sent([5, 6]))
    assert keys(link) == ["1", "2", "5"]
    assert exhausted == [True, True]
    await link.answer(methods.BASIC_ACK, delivery_tag=3, multiple=True)
    assert link.counts.forwarded == 2
    assert link.target.confirms.in_flight == 0


async def test_what_can_not_be_published_does_not_count() -> None:
    link, exhausted = await limited(1, largest=10)
    await link.deliver(*sent([1], bytes(11)), *sent([2, 3]))
    assert keys(link) == ["2"]
    assert exhausted == [True]


async def test_a_broker_that_sends_without_end_beyond_the_limit_is_left() -> None:
    link, _ = await limited(1 - MOST_UNSETTLED)  # so that the second one is so far beyond it
    await link.deliver(*sent([1]))
    assert not link.upstream.closed.done()
    await link.deliver(*sent([2]))
    assert "more deliveries than the prefetch allows" in str(link.upstream.closed.result())


async def test_what_comes_beyond_the_limit_is_not_taken() -> None:
    link, _ = await limited(2)
    await link.deliver(*sent(range(1, 5)))
    assert link.counts.taken == 2
    await refuse(link, 1)
    await link.deliver(*sent([5, 6]))
    assert (link.counts.taken, link.counts.given_back) == (3, 1)
    assert link.target.unsettled == 2
