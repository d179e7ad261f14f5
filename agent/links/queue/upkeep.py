"""The upkeep of a running queue link: taking messages while they are wanted, its prefetch sized, its lag measured."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.amqp.rpc import look_into
from agent.core.links.demand import SOON, Demand, Look
from agent.core.model import QueueLink
from agent.downstream.consumers import Consumers
from agent.errors import Side, happening_on
from agent.links.flow import Flow
from agent.links.queue.visits import VisitHeaders
from agent.links.upkeep import Upkeep
from agent.tasks import GuardedTasks, UnexpectedErrors

EVERY: Final = 0.05
MOST_LOOKS: Final = 50  # in a tick: with more links that are due, each looks less often
TASK: Final = "look at queues of queue links"


class Timed(Protocol):
    def looks_if_due(self, now: float) -> bool:
        """Look at the queue if it is time to; return True if it was."""


class Timing:
    """Lets queue links look at their queues when that is due, while there are any."""

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
            now = loop.time()
            for link in list(islice((link for link in self._links if link.looks_if_due(now)), MOST_LOOKS)):
                del self._links[link]  # to the end of the row
                self._links[link] = None


LOOK_UPSTREAM: Final = 30.0  # while nothing is taken
TAKEN_UPSTREAM: Final = "idle: consumers upstream take everything"


class QueueUpkeep(Upkeep):
    """The upkeep of one session. `is_wanted` is asked before it begins; `run` does what time and events find to do."""

    def __init__(
        self,
        flow: Flow,
        counts: Counts,
        link: QueueLink,
        *,
        upstream: Shared,
        local: Shared,
        consumers: Consumers,
        headers: VisitHeaders,
        timing: Timing,
    ) -> None:
        """`upstream` and `local` are the connections on which the queues there are looked at; `consumers` are those of
        the downstream."""
        super().__init__(flow, counts, self._look_upstream)
        self._link = link
        self._upstream = upstream
        self._local = local
        self._consumers = consumers
        self._headers = headers
        self._timing = timing
        now = self._loop.time()
        self._demand = Demand(is_auto_delete=link.queue.auto_delete)
        self._look_upstream_at = now + LOOK_UPSTREAM * random.random()
        self._due_at = now
        self._seen_forwarded = counts.forwarded
        self._is_due = False
        self._others_upstream = 0

    async def is_wanted(self) -> bool:
        """Look at the queue; return True if messages are wanted now."""
        await self._look()
        return self._demand.takes

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """Find what is due; return for how many seconds something has waited and nothing was confirmed: 0 while nothing
        is taken, as nothing has to be confirmed then."""
        takes = self._demand.takes
        must_look = now >= (self.due_at if takes else self._look_upstream_at)
        if must_look:
            self._look_upstream_at = now + LOOK_UPSTREAM
        waited = self.observe(now, is_blocked=is_blocked, must_look=must_look)
        if takes or self._flow.unsettled:
            self.rest(self.due_at, waits=self.waits)
            return waited
        self.forgive()
        self.rest(self._look_upstream_at, waits=False)
        return 0.0

    def looks_if_due(self, now: float) -> bool:
        """Look at the queue if it is time to, which it also is soon after messages began to move; return True if it
        was."""
        has_moved = self._counts.forwarded != self._seen_forwarded
        is_time = now >= self._due_at or (has_moved and self._due_at - self._loop.time() > SOON)
        if is_time and not self._is_due:
            self._look_now()
            return True
        return False

    def _look_now(self) -> None:
        self._is_due = True
        self.wake.set()

    async def run(self) -> None:
        link = self._link
        with self._timing.timing(self), self._consumers.watching(link.vhost, link.name, self._look_now):
            self._look_now()  # consumers may have come or gone before they were watched
            await super().run()

    async def work(self) -> None:
        if self._is_due:
            await self._look()
            await (self._flow.resume_consuming() if self._demand.takes else self._flow.pause_consuming())
        await self.catch_up()
        self._explain()

    async def _look(self) -> None:
        self._is_due = False
        self._due_at = self._loop.time() + SOON  # in case that it takes long
        seen, now = await self._look_at_local(), self._loop.time()
        self._seen_forwarded = self._counts.forwarded
        if seen is not None:
            self._demand.look(now, seen)
        self._due_at = now + (SOON if seen is None else self._demand.due_in(is_heard=self._consumers.is_heard))
        self._explain()

    async def _look_at_local(self) -> Look | None:
        """Look at the downstream queue; None before it is known which of its consumers are links themselves."""
        link, headers = self._link, self._headers
        with happening_on(Side.DOWNSTREAM):
            ready, consumers = await look_into(self._local, link.name)
        below = self._consumers.below_zero(link.vhost, link.name)
        if consumers and below is None:
            return None
        users = max(0, consumers - (below or 0))
        return Look(ready, users, self._counts.forwarded, headers.most_visits, headers.revisited)

    async def _look_upstream(self) -> int:
        ready, consumers = await look_into(self._upstream, self._link.remote_name)
        self._others_upstream = consumers - int(self._demand.takes)
        return ready

    def _explain(self) -> None:
        demand = self._demand
        is_left_nothing = demand.takes and self._others_upstream > 0 and not self.waits
        self._flow.idle = demand.idle or (TAKEN_UPSTREAM if is_left_nothing else "")
