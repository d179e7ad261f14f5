"""When each queue link is to look at its queue: one tick for all, as most have nothing to do most of the time.

However many links are due, only so many look in one tick, each in its turn. Looks that events ask for aren't counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

from agent.tasks import GuardedTasks, UnexpectedErrors

EVERY: Final = 0.05
MOST_LOOKS: Final = 50  # in a tick: with more links that are due, each looks less often
TASK: Final = "look at queues of queue links"


class Timed(Protocol):
    def looks_if_due(self, now: float) -> bool:
        """Whether it was time to look at the queue."""


class Timing:
    """Beats while there are links."""

    def __init__(self, errors: UnexpectedErrors) -> None:
        self._tasks = GuardedTasks(errors)
        self._links: dict[Timed, None] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def timing(self, link: Timed) -> Iterator[None]:
        self._links[link] = None
        if self._task is None:
            self._task = self._tasks.keep(TASK, self._tick)
        try:
            yield
        finally:
            del self._links[link]
            if not self._links and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(EVERY)
            self._tick_once(loop.time())

    def _tick_once(self, now: float) -> None:
        """Those that looked go to the end of the row."""
        looked = list(islice((link for link in self._links if link.looks_if_due(now)), MOST_LOOKS))
        for link in looked:
            del self._links[link]
            self._links[link] = None
