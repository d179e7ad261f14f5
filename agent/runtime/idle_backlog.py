"""What waits for a link that has no session: its queue is looked at on a connection that carries no messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from agent.amqp.connection_pool import Shared
from agent.amqp.rpc import count_messages
from agent.errors import BrokerError
from agent.links.brokers import Brokers
from agent.links.ends import End

LOOK_EVERY: Final = 5.0
LOOK_PATIENCE: Final = 10.0


class IdleBacklog:
    """`messages` wait; None where that can't be known now. `queue_of` names the queue in a vhost of the source, or
    answers None where there is none while no session is open."""

    def __init__(self, brokers: Brokers, source: End, queue_of: Callable[[str], str | None]) -> None:
        self.messages: int | None = None
        self._brokers = brokers
        self._source = source
        self._queue_of = queue_of
        self._control: Shared | None = None

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_EVERY)
        finally:
            await self._leave()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(LOOK_PATIENCE):
                self.messages = await self._count()
        except (BrokerError, TimeoutError):
            self.messages = None
            await self._leave()

    async def _count(self) -> int | None:
        if self._control is None:
            self._control = await self._brokers.control(self._source)
        queue = self._queue_of(self._control.connection.vhost)
        return None if queue is None else await count_messages(self._control, queue)

    async def _leave(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.release()
