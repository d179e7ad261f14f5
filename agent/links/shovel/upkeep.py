"""The upkeep of a running shovel: its prefetch sized, its lag measured."""

from __future__ import annotations

import asyncio
import random

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.amqp.questions import count_messages
from agent.core.links.lag import Lag
from agent.links.flow import Flow


class Upkeep:
    """Of one session that is open; `run` does what `tick` finds to do. `control` is where the queue is looked at."""

    def __init__(self, flow: Flow, counts: Counts, control: Shared, queue: str) -> None:
        self._flow = flow
        self._counts = counts
        self._control = control
        self._queue = queue
        self._lag = Lag(asyncio.get_running_loop().time(), confirmed=counts.forwarded, chance=random.random())
        self._wake = asyncio.Event()
        self._is_looking = False
        self._prefetch: int | None = None
        self._moved: tuple[int | None, ...] = ()

    @property
    def backlog(self) -> int | None:
        """What waits at the source and here; not known before the source was looked at."""
        return self._lag.behind(self._flow.unsettled, prefetch=self._flow.prefetch)

    def is_quiet(self, now: float) -> bool:
        waits = self._moved != self._movement or self._flow.unsettled or self._lag.ready
        return not waits and now < self._lag.due_at

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """For how many seconds something has waited and nothing was confirmed; nobody can help it while blocked."""
        flow, lag = self._flow, self._lag
        self._moved = self._movement
        waited = lag.observe(now, confirmed=self._counts.forwarded, unsettled=flow.unsettled)
        lag.is_held = is_blocked
        if is_blocked:  # nothing is confirmed then, and messages go on arriving at the source
            lag.forgive()
            lag.may_have_grown()
            waited = 0.0
        if now >= lag.due_at:
            lag.asks(now)
            self._is_looking = True
        self._prefetch = flow.better_prefetch(now) or self._prefetch
        if self._prefetch is not None or self._is_looking:
            self._wake.set()
        return waited

    async def run(self) -> None:
        """Until cancelled, or until a broker refuses something."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._prefetch is not None:
                wanted, self._prefetch = self._prefetch, None
                await self._flow.resize(wanted)
            if self._is_looking:
                self._is_looking = False
                self._lag.told(await count_messages(self._control, self._queue))

    @property
    def _movement(self) -> tuple[int | None, ...]:
        counts = self._counts
        return counts.forwarded, counts.bytes, counts.returned, self._lag.ready
