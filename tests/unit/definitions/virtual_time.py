"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools

# Enough turns of the loop for whoever was woken to get to its next sleep.
_TURNS = 50


class VirtualTime:
    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Lets the time pass, waking sleepers in their order."""
        end = self.now + seconds
        await self.turn()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await self.turn()
        self.now = end

    async def turn(self) -> None:
        """Lets everything run that needs no time."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
