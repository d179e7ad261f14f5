"""Long work on the loop, a moment at a time: messages and HTTP are processed in between.

A thread would compete with the loop for the interpreter, and delay it longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Final, TypeVar

SLICE: Final = 0.002  # seconds; a turn of the loop costs some 30 µs, as much as looking at five quiet links

Clock = Callable[[], float]
T = TypeVar("T")


async def in_slices(items: Iterable[T], clock: Clock = time.perf_counter) -> AsyncIterator[T]:
    """The items, of which those that come later may have changed meanwhile."""
    end = clock() + SLICE
    for item in tuple(items):
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
