"""Long work leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from agent.slices import SLICE, in_slices, steps_in_slices


class Others:
    """They count their turns."""

    turns = 0

    @contextmanager
    def beside(self) -> Iterator[None]:
        task = asyncio.create_task(self._run())
        yield
        task.cancel()

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


class Clock:
    """Each look takes a third of a slice, or as long as is told."""

    def __init__(self, step: float = SLICE / 3) -> None:
        self._now = 0.0
        self._step = step

    def __call__(self) -> float:
        self._now += self._step
        return self._now


async def test_others_have_their_turn_between_slices_of_steps() -> None:
    def steps() -> Generator[None, None, str]:
        for _ in range(30):
            yield
        return "done"

    others = Others()
    with others.beside():
        assert await steps_in_slices(steps(), Clock()) == "done"
    assert 7 <= others.turns <= 15


async def test_others_have_their_turn_between_slices_of_items() -> None:
    others = Others()
    with others.beside():
        assert [item async for item in in_slices(range(30), Clock())] == list(range(30))
    assert 7 <= others.turns <= 15


async def test_what_takes_no_time_is_one_slice() -> None:
    """A turn of the loop costs more than looking at a quiet link."""
    others = Others()
    with others.beside():
        assert [item async for item in in_slices(range(1000), Clock(0.0))] == list(range(1000))
    assert others.turns == 0
