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
    limited_by: str = ""
    waits_for_limit: bool = False

    def better_prefetch(self, now: float) -> int | None:  # noqa: ARG002 - as a flow has it
        return None


@dataclass
class IdleLink:
    """One that has looked at its queue, which was empty, and waits until it is due again."""

    now: float
    flow: Still = field(default_factory=Still)
    counts: Counts = field(default_factory=Counts)
    ready: int = 0
    upkeep: Upkeep = field(init=False)

    @classmethod
    async def begin(cls, now: float) -> IdleLink:
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
async def idle() -> IdleLink:
    return await IdleLink.begin(asyncio.get_running_loop().time())


async def test_it_does_nothing_until_its_queue_is_due(idle: IdleLink) -> None:
    assert idle.is_quiet()
    idle.now = idle.upkeep.due_at - 0.1
    assert idle.is_quiet()
    idle.now = idle.upkeep.due_at
    assert not idle.is_quiet()
    assert idle.upkeep.due_at <= idle.now + QUIET


async def test_a_link_that_waits_for_its_limit_has_not_waited_for_its_downstream(idle: IdleLink) -> None:
    """Nothing is unsettled then, and messages wait at the source for as long as one that was large takes to pay."""
    idle.ready = 100
    idle.now = idle.upkeep.due_at
    idle.tick()
    await idle.upkeep.catch_up()
    idle.upkeep.tick(idle.now, is_blocked=False)
    idle.now += 100
    assert idle.upkeep.tick(idle.now, is_blocked=False) >= 99, "it is behind, and not limited"
    idle.flow.waits_for_limit, idle.flow.limited_by = True, "5 bytes/s"
    assert idle.upkeep.tick(idle.now, is_blocked=False) == 0
    assert not idle.is_quiet()
    idle.flow.waits_for_limit = False
    assert idle.upkeep.tick(idle.now + 5, is_blocked=False) <= 5


async def test_what_was_taken_and_settled_at_once_is_noticed(idle: IdleLink) -> None:
    idle.counts.taken += 1
    idle.counts.forwarded += 1
    assert not idle.is_quiet()
    idle.tick()
    assert idle.is_quiet()


@pytest.mark.parametrize(
    ("name", "value"), [("unsettled", 1), ("unaccounted", 1), ("is_watched", True), ("trouble", "refused")]
)
async def test_it_does_not_rest_while_something_is_on_its_way_or_wrong(
    idle: IdleLink, name: str, value: object
) -> None:
    former = getattr(idle.flow, name)
    idle.upkeep.stir()
    setattr(idle.flow, name, value)
    idle.tick()
    assert not idle.is_quiet()
    setattr(idle.flow, name, former)
    assert not idle.is_quiet(), "what has become of it is yet to be seen"
    idle.tick()
    assert idle.is_quiet()


async def test_it_does_not_rest_while_messages_wait_at_the_source(idle: IdleLink) -> None:
    idle.now, idle.ready = idle.upkeep.due_at, 3
    idle.tick()
    await idle.upkeep.catch_up()
    idle.tick()
    assert not idle.is_quiet()


async def test_it_stirs(idle: IdleLink) -> None:
    idle.upkeep.stir()
    assert not idle.is_quiet()
