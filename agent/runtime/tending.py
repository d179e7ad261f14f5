"""What a link that runs needs by and by: its bindings in step, its prefetch sized, its lag looked at."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from agent.amqp.wire.splice import Counts
from agent.core.lag import Lag
from agent.core.model import Binding
from agent.runtime.building import Building
from agent.runtime.flow import Flow

ASSERT_ALL: Final = 20.0  # in this time all bindings of a link are bound again
ASSERT_PARTS: Final = 10  # at most


class Tending:
    """Of one session that is open; `run` does what `beat` and `rebind` find to do, one thing after another."""

    def __init__(
        self,
        building: Building,
        flow: Flow,
        counts: Counts,
        bindings: frozenset[Binding],
        *,
        on_followed: Callable[[], None] = lambda: None,
    ) -> None:
        """`bindings` are those that it was opened with; `on_followed` is called after others were brought in step."""
        self._on_followed = on_followed
        self._building = building
        self._flow = flow
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._bindings = bindings
        self._lag = Lag(self._loop.time(), confirmed=counts.forwarded, chance=random.random())
        self._wake = asyncio.Event()
        self._stale_since: float | None = None
        self._assert_at = self._loop.time() + ASSERT_ALL / self._parts * random.random()
        self._is_asserting = False
        self._is_looking = False
        self._prefetch: int | None = None
        self._moved: tuple[int | None, ...] = ()

    def is_quiet(self, now: float) -> bool:
        """Nothing has moved or waits, and nothing is due: what most of a thousand links are, most of the time."""
        if self._moved != self._movement or self._flow.unsettled or self._lag.ready:
            return False
        return now < self._assert_at and now < self._lag.due_at

    @property
    def _movement(self) -> tuple[int | None, ...]:
        counts, building = self._counts, self._building
        dropped, bindings = sum(counts.dropped.values()), (building.bound, building.left_out)
        return counts.forwarded, counts.bytes, counts.returned, dropped, *bindings, self._lag.ready

    @property
    def backlog(self) -> int | None:
        """What waits upstream and here; not known before upstream was looked at."""
        ready = self._lag.ready
        return None if ready is None else ready + self._flow.unsettled

    def rebind(self, bindings: frozenset[Binding]) -> None:
        if bindings != self._bindings:
            self._bindings = bindings
            self._stale_since = self._loop.time()
            self._wake.set()

    def beat(self, now: float, *, is_blocked: bool) -> float:
        """For how many seconds something has waited and nothing was confirmed; nobody can help it while blocked."""
        flow, lag = self._flow, self._lag
        self._moved = self._movement
        waited = lag.observe(now, confirmed=self._counts.forwarded, unsettled=flow.unsettled)
        if is_blocked:  # nothing is read then, no answer either
            lag.forgive()
            lag.ready, waited = None, 0.0
        elif now >= lag.due_at:
            lag.asks(now)
            self._is_looking = True
        self._prefetch = flow.better_prefetch(now) or self._prefetch
        self._is_asserting = self._is_asserting or now >= self._assert_at
        if self._prefetch is not None or self._is_asserting or self._is_looking:
            self._wake.set()
        return waited

    async def run(self) -> None:
        """Until cancelled, or until a broker refuses something."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._follow()
            if self._prefetch is not None:
                wanted, self._prefetch = self._prefetch, None
                await self._flow.resize(wanted)
            if self._is_looking:
                self._is_looking = False
                await self._look()
            if self._is_asserting:
                self._is_asserting = False
                self._assert_at = max(self._assert_at + ASSERT_ALL / self._parts, self._loop.time())
                await self._building.assert_bindings(self._parts, between=self._follow)

    async def _follow(self) -> None:
        since, self._stale_since = self._stale_since, None
        if since is None:
            return
        await self._building.follow(self._bindings)
        self._counts.binding_sync.observe(self._loop.time() - since)
        self._on_followed()

    async def _look(self) -> None:
        ready = await self._building.depth()
        if ready is not None:
            self._lag.told(ready)

    @property
    def _parts(self) -> int:
        return max(1, min(ASSERT_PARTS, self._building.bound))
