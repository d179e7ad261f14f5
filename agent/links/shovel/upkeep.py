"""The upkeep of a running shovel: its prefetch sized, its lag measured."""

from __future__ import annotations

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.amqp.questions import count_messages
from agent.links.flow import Flow
from agent.links.flow_watch import FlowWatch


class Upkeep:
    """Of one session that is open; `run` does what `tick` finds to do. `control` is where the queue is looked at."""

    def __init__(self, flow: Flow, counts: Counts, control: Shared, queue: str) -> None:
        self._watch = FlowWatch(flow, counts)
        self._control = control
        self._queue = queue

    @property
    def backlog(self) -> int | None:
        return self._watch.backlog

    def is_quiet(self, now: float) -> bool:
        return self._watch.is_quiet(now)

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """For how many seconds something has waited and nothing was confirmed."""
        watch = self._watch
        waited = watch.observe(now, is_blocked=is_blocked, must_look=now >= watch.due_at)
        watch.rest(watch.due_at, waits=watch.waits)
        return waited

    async def run(self) -> None:
        """Until cancelled, or until a broker refuses something."""
        while True:
            await self._watch.wake.wait()
            self._watch.wake.clear()
            await self._watch.catch_up(self._ready)
            self._watch.stir()

    async def _ready(self) -> int:
        return await count_messages(self._control, self._queue)
