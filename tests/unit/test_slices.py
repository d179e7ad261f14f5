"""Long work leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from agent.slices import SLICE, Gradually, in_slices, steps_in_slices


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


def taking(done: list[int], count: int) -> Callable[[], Iterator[None]]:
    def steps() -> Iterator[None]:
        for number in range(count):
            done.append(number)
            yield

    return steps


async def test_a_few_steps_are_taken_at_once() -> None:
    done: list[int] = []
    work = Gradually(taking(done, 1000), Clock(0.0))
    work()
    assert len(done) == 1000
    assert not work.is_under_way


async def test_others_have_their_turn_between_slices_of_what_is_done_gradually() -> None:
    done: list[int] = []
    work = Gradually(taking(done, 30), Clock())
    work()
    seen = [len(done)]
    while len(done) < 30:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert max(after - before for before, after in pairwise([0, *seen])) <= 4
    await asyncio.sleep(0)
    assert not work.is_under_way


async def test_an_iterator_makes_items_as_they_come() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(30):
            made.append(number)
            yield number

    async for number in in_slices(numbers(), Clock()):
        assert made == list(range(number + 1))


async def test_what_fails_is_done_again_where_that_was_asked_for() -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(12):
            done.append(number)
            yield
            if len(done) == 12:
                raise ValueError("unexpected")

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    work = Gradually(steps, Clock())
    work()
    work()
    for _ in range(30):
        await asyncio.sleep(0)
    assert done == [*range(12), *range(12)]
    assert len(failures) == 1
    assert not work.is_under_way


async def test_what_is_asked_for_again_meanwhile_is_done_once_more() -> None:
    done: list[int] = []
    work = Gradually(taking(done, 30), Clock())
    for _ in range(3):
        work()
    for _ in range(60):
        await asyncio.sleep(0)
    assert done == [*range(30), *range(30)]


async def test_what_is_left_can_be_done_at_once() -> None:
    done: list[int] = []
    work = Gradually(taking(done, 30), Clock())
    work()
    work()
    work.finish()
    assert done == [*range(30), *range(30)]
    assert not work.is_under_way


async def test_a_step_that_fails_ends_what_is_under_way_and_nothing_else() -> None:
    done: list[int] = []

    def steps() -> Iterator[None]:
        yield
        done.append(len(done))
        raise OSError("no")

    work = Gradually(steps, Clock(0.0))
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            work()
    assert done == [0, 1]
