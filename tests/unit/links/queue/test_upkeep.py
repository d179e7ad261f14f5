"""Many links that are due look in turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field

from agent.links.queue.upkeep import EVERY, MOST_LOOKS, Timing
from agent.tasks import UnexpectedErrors
from tests.unit.amqp.wire.virtual_loop import in_virtual_time


@dataclass(eq=False)
class Link:
    every: float
    looks: list[float] = field(default_factory=list)

    def looks_if_due(self, now: float) -> bool:
        is_time = not self.looks or now - self.looks[-1] >= self.every
        if is_time:
            self.looks.append(now)
        return is_time


def looked(links: list[Link], seconds: float) -> Counter[int]:
    """How many links have looked how often."""

    async def live() -> None:
        timing = Timing(UnexpectedErrors())
        with ExitStack() as timed:
            for link in links:
                timed.enter_context(timing.timing(link))
            await asyncio.sleep(seconds + EVERY / 2)

    in_virtual_time(live())
    return Counter(len(link.looks) for link in links)


def test_few_links_look_when_they_are_due() -> None:
    assert looked([Link(every=0.25) for _ in range(20)], 1) == {4: 20}


def test_many_links_look_in_turns_and_no_more_often_together() -> None:
    found = looked([Link(every=0.05) for _ in range(5_000)], 20)
    assert sum(times * links for times, links in found.items()) <= MOST_LOOKS * 20 / EVERY
    assert set(found) == {4}


def test_a_link_that_is_rarely_due_waits_for_no_round_of_busy_ones() -> None:
    busy, rare = [Link(every=0.05) for _ in range(500)], Link(every=5.0)
    looked([*busy, rare], 20)
    assert len(rare.looks) >= 3
