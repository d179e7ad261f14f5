"""Long work on the loop, a moment at a time: messages and HTTP are processed in between.

A thread would compete with the loop for the interpreter, and delay it longer.

Why: docs/decisions/0047-work-in-slices.md
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Final, TypeVar

SLICE: Final = 0.002  # seconds; a turn of the loop costs some 30 µs, as much as looking at five quiet links

Clock = Callable[[], float]
T = TypeVar("T")


async def in_slices(items: Iterable[T], clock: Clock = time.perf_counter) -> AsyncIterator[T]:
    """The items, of which those that come later may have changed meanwhile; an iterator makes them as they come."""
    end = clock() + SLICE
    for item in items if isinstance(items, Iterator) else tuple(items):
        yield item
        if clock() >= end:
            await asyncio.sleep(0)
            end = clock() + SLICE


async def steps_in_slices(steps: Generator[None, None, T], clock: Clock = time.perf_counter) -> T:
    """The result of the steps."""
    end = clock() + SLICE
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if clock() >= end:
            await asyncio.sleep(0)
            end = clock() + SLICE


class Gradually:
    """Steps that begin at once; those that take longer than a slice go on in the turns that follow. Asked for once more
    meanwhile, all of them are taken again. It counts CPU, so that few steps are done at once also where that is scarce.
    """

    def __init__(self, steps: Callable[[], Iterator[None]], clock: Clock = time.thread_time) -> None:
        self._steps = steps
        self._clock = clock
        self._left: Iterator[None] | None = None
        self._is_asked_again = False

    def __call__(self) -> None:
        self._is_asked_again = self.is_under_way
        if self._left is None:
            self._left = self._steps()
            self._go_on()

    @property
    def is_under_way(self) -> bool:
        return self._left is not None

    def finish(self) -> None:
        """All that is left, now."""
        while self._left is not None:
            self._take(math.inf)

    def _go_on(self) -> None:
        try:
            if self._left is not None:
                self._take(self._clock() + SLICE)
        finally:  # one that failed may have been asked for again
            if self._left is not None:
                asyncio.get_running_loop().call_soon(self._go_on)

    def _take(self, end: float) -> None:
        """One that fails ends the others."""
        steps, is_over = self._left, True
        try:
            for _ in steps or ():
                if self._clock() >= end:
                    is_over = False
                    break
        finally:
            if is_over:
                self._left = self._steps() if self._is_asked_again else None
                self._is_asked_again = False
