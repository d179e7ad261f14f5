"""A session rests while nothing moves and nothing is due, and no longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from agent.amqp.data.publish_tracker import Counts
from agent.core.links.lag import MOVING, QUIET
from agent.links.flow import Flow
from agent.links.upkeep import Upkeep


@dataclass
class Still:
    """A flow on which nothing moves."""

    unsettled: int = 0
    unaccounted: int = 0
    unread: int = 0
    prefetch: int = 100
    is_consuming: bool = True
    is_watched: bool = False
    counts_all: bool = True
    trouble: str = ""

    def better_prefetch(self, now: float) -> int | None:  # noqa: ARG002 - as a flow has it
        return None


@dataclass
class Resting:
    """One that has looked at its queue, which was empty, and rests since."""

    now: float
    flow: Still = field(default_factory=Still)
    counts: Counts = field(default_factory=Counts)
    ready: int = 0
    upkeep: Upkeep = field(init=False)

    @classmethod
    async def begin(cls, now: float) -> Resting:
        found = cls(now + MOVING)
        found.upkeep = Upkeep(cast("Flow", found.flow), found.counts, found.look)
        found.tick()
        await found.upkeep.catch_up()
        found.tick()
        return found

    async def look(self) -> int | None:
        return self.ready

    def tick(self) -> None:
        self.upkeep.tick(self.now, is_blocked=False)

    def is_quiet(self) -> bool:
        return self.upkeep.is_quiet(self.now)


@pytest.fixture
async def resting() -> Resting:
    return await Resting.begin(asyncio.get_running_loop().time())


async def test_it_rests_until_its_queue_is_to_be_looked_at(resting: Resting) -> None:
    assert resting.is_quiet()
    resting.now = resting.upkeep.due_at - 0.1
    assert resting.is_quiet()
    resting.now = resting.upkeep.due_at
    assert not resting.is_quiet()
    assert resting.upkeep.due_at <= resting.now + QUIET


async def test_what_was_taken_and_settled_at_once_is_noticed(resting: Resting) -> None:
    resting.counts.taken += 1
    resting.counts.forwarded += 1
    assert not resting.is_quiet()
    resting.tick()
    assert resting.is_quiet()


@pytest.mark.parametrize(
    ("name", "value"), [("unsettled", 1), ("unaccounted", 1), ("is_watched", True), ("trouble", "refused")]
)
async def test_it_does_not_rest_while_something_is_on_its_way_or_wrong(
    resting: Resting, name: str, value: object
) -> None:
    former = getattr(resting.flow, name)
    resting.upkeep.stir()
    setattr(resting.flow, name, value)
    resting.tick()
    assert not resting.is_quiet()
    setattr(resting.flow, name, former)
    assert not resting.is_quiet(), "what has become of it is yet to be seen"
    resting.tick()
    assert resting.is_quiet()


async def test_it_does_not_rest_while_messages_wait_at_the_source(resting: Resting) -> None:
    resting.now, resting.ready = resting.upkeep.due_at, 3
    resting.tick()
    await resting.upkeep.catch_up()
    resting.tick()
    assert not resting.is_quiet()


async def test_it_stirs(resting: Resting) -> None:
    resting.upkeep.stir()
    assert not resting.is_quiet()
