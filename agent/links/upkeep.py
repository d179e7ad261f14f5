"""The upkeep of a running link, whatever its kind: how far behind its messages are, and which prefetch suits them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from agent.amqp.data.splice import Counts
from agent.core.links.lag import Lag
from agent.links.flow import Flow


class Wake:
    """Wakes one task, as an `asyncio.Event` that is cleared once it was waited for; that takes 0.7 KB more."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        while not self._is_set:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._is_set, self._waiter = False, None


class Upkeep:
    """The upkeep of one session; kinds add to it. `tick` finds what to do and sets `wake`, and `run` does it.

    A session rests while nothing is taken and nothing is due, which is what most of a thousand links do, most of the
    time: `is_quiet` is all that a second costs then.
    """

    __slots__ = (
        "_counts", "_flow", "_is_looking", "_lag", "_look_at_source", "_loop", "_prefetch", "_rests_until", "_taken",
        "wake",
    )  # fmt: skip

    def __init__(self, flow: Flow, counts: Counts, look: Callable[[], Awaitable[int | None]]) -> None:
        """`look` returns the number of messages that are ready at the source, None if that can't be known."""
        self.wake = Wake()
        self._flow = flow
        self._counts = counts
        self._look_at_source = look
        self._loop = asyncio.get_running_loop()
        self._lag = Lag(self._loop.time(), confirmed=_done(counts), chance=random.random())
        self._is_looking = False
        self._prefetch: int | None = None
        self._taken = counts.taken
        self._rests_until = 0.0

    @property
    def backlog(self) -> int | None:
        """The number of messages that wait at the source and here; None before the source was looked at."""
        flow = self._flow
        return self._lag.behind(flow.unsettled + flow.unread, prefetch=flow.prefetch if flow.is_consuming else 0)

    @property
    def waits(self) -> bool:
        """True if messages wait, as far as that is known."""
        return bool(self._flow.unsettled or self._lag.ready)

    def is_quiet(self, now: float) -> bool:
        """True if nothing has moved or changed since the session began to rest, and nothing is due."""
        return now < self._rests_until and self._counts.taken == self._taken

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """Find what is due; return for how many seconds messages have waited and none was confirmed."""
        waited = self.observe(now, is_blocked=is_blocked, must_look=now >= self.due_at)
        self.rest(self.due_at, waits=self.waits)
        return waited

    async def run(self) -> None:
        """Do what is found, until cancelled or until a broker refuses something."""
        while True:
            await self.wake.wait()
            await self.work()
            self.stir()

    async def work(self) -> None:
        """Do what was found."""
        await self.catch_up()

    def rest(self, until: float, *, waits: bool) -> None:
        """Rest until then, once what is to be done now was found; not if messages wait."""
        flow = self._flow  # what is never acknowledged isn't unsettled, and trouble is shown for a while
        waits = waits or flow.unaccounted > 0 or flow.is_watched or bool(flow.trouble or flow.limited_by)
        self._taken, self._rests_until = self._counts.taken, 0.0 if waits else until

    def stir(self) -> None:
        """End the rest: something has changed."""
        self._rests_until = 0.0

    @property
    def due_at(self) -> float:
        """The time to look at the source's queue."""
        return self._lag.due_at

    def observe(self, now: float, *, is_blocked: bool, must_look: bool) -> float:
        """Find what `catch_up` is to do; return for how many seconds messages have waited and none was confirmed: 0
        while blocked, or while nothing may be read, as none can be."""
        flow, lag = self._flow, self._lag
        waited = lag.observe(now, confirmed=_done(self._counts), unsettled=flow.unsettled)
        lag.is_held = is_blocked and not flow.counts_all
        if is_blocked:  # messages go on arriving at the source
            lag.forgive()
            lag.expect_growth()
            waited = 0.0
        elif flow.waits_for_limit:
            lag.forgive()
            waited = 0.0
        if must_look:
            lag.asks(now)
            self._is_looking = True
        self._prefetch = flow.better_prefetch(now) or self._prefetch
        if self._prefetch is not None or self._is_looking:
            self.wake.set()
        return waited

    def forgive(self) -> None:
        """Let messages wait without counting that as lag: they aren't to be taken now."""
        self._lag.forgive()

    async def catch_up(self) -> None:
        if self._prefetch is not None:
            wanted, self._prefetch = self._prefetch, None
            await self._flow.resize(wanted)
        if self._is_looking:
            self._is_looking = False
            ready = await self._look_at_source()
            if ready is not None:
                self._lag.counted(ready)


def _done(counts: Counts) -> int:
    """The number of messages that need nothing more: they are forwarded, or in the quarantine."""
    return counts.forwarded + sum(counts.quarantined.values())
