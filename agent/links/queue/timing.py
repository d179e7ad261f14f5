"""When each queue link is to look at its queue: one beat for all, as most have nothing to do most of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from agent.tasks import GuardedTasks, UnexpectedErrors

EVERY: Final = 0.05
TASK: Final = "look at queues of queue links"


class Timed(Protocol):
    def beat(self, now: float) -> None:
        """Looks whether it is time."""


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
            self._task = self._tasks.keep(TASK, self._beat)
        try:
            yield
        finally:
            del self._links[link]
            if not self._links and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(EVERY)
            now = loop.time()
            for link in tuple(self._links):
                link.beat(now)
