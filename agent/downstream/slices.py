"""Long work on the loop, a few milliseconds at a time: messages and HTTP are processed in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

SLICE: Final = 0.005  # seconds

T = TypeVar("T")


async def in_slices(steps: Generator[None, None, T], clock: Callable[[], float] = time.perf_counter) -> T:
    """The result of the steps. A thread would compete with the loop for the interpreter, and delay it longer."""
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
