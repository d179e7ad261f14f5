"""The one way in which tests wait: for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE = 10.0
INTERVAL = 0.02  # between two questions at first
LONGEST_INTERVAL = 0.1  # a long wait asks brokers and logs no thousand times
GROWTH = 0.05  # of what was waited

T = TypeVar("T")


class NeverHappenedError(AssertionError):
    """What a test waited for did not come true before its deadline."""

    def __init__(self, what: str, deadline: float, last: object) -> None:
        super().__init__(f"{what}: not within {deadline:g} s; the last answer was {last!r}")


def eventually(
    condition: Callable[[], T],
    deadline: float = DEADLINE,
    *,
    what: str = "condition",
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Ask until the answer is truthy, then return it; exceptions in `ignoring` count as a no."""
    begun = time.monotonic()
    while True:
        last: object
        try:
            if last := condition():
                return last
        except ignoring as error:
            last = error
        waited = time.monotonic() - begun
        if waited > deadline:
            raise NeverHappenedError(what, deadline, last)
        time.sleep(_interval(waited))


async def eventually_async(
    condition: Callable[[], Awaitable[T]],
    deadline: float = DEADLINE,
    *,
    what: str = "condition",
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """`eventually` for a coroutine function."""
    begun = time.monotonic()
    while True:
        last: object
        try:
            if last := await condition():
                return last
        except ignoring as error:
            last = error
        waited = time.monotonic() - begun
        if waited > deadline:
            raise NeverHappenedError(what, deadline, last)
        await asyncio.sleep(_interval(waited))


def _interval(waited: float) -> float:
    return min(max(INTERVAL, waited * GROWTH), LONGEST_INTERVAL)
