"""The wait of a link that is no longer defined: what it built upstream stays, until that may be removed."""

from __future__ import annotations

import asyncio
from typing import Final

from agent.amqp.connection_pool import Shared
from agent.amqp.questions import count_messages
from agent.core.links.reconcile import upstream_queue_name
from agent.core.links.removal import announce
from agent.core.model import ExchangeLink
from agent.core.rules import names
from agent.errors import BrokerError
from agent.links.brokers import Brokers

LOOK_EVERY: Final = 5.0
LOOK_PATIENCE: Final = 10.0
HELD: Final = 1.0  # after that it is looked whether the removal may happen now


class Lingering:
    """`cluster` is the downstream's name under which the queue was built, `since` when the link became unwanted.

    `messages` wait in its queue; None where that can't be known now.
    """

    def __init__(self, link: ExchangeLink, brokers: Brokers, *, cluster: str, since: float) -> None:
        self.messages: int | None = None
        self.looks = 0
        self._link = link
        self._brokers = brokers
        self._cluster = cluster
        self._since = since
        self._control: Shared | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def _left(self) -> float:
        """Seconds; a change of the configuration holds for the links that wait already."""
        return self._brokers.cleanup_after.due_at(self._since, self.messages) - self._loop.time()

    @property
    def _is_long_ago(self) -> bool:
        """Whether even messages have waited for long enough."""
        return self._brokers.cleanup_after.due_at(self._since, None) <= self._loop.time()

    @property
    def text(self) -> str:
        """What an operator is shown; nothing before the first look is over."""
        if not self.looks:
            return ""
        return announce(self._left, self.messages, held=self._brokers.holds_removals(self._link))

    async def run(self) -> bool:
        """Until the removal is due; answers whether messages may wait in the queue even so."""
        try:
            while True:
                if not self._brokers.cleanup_after.is_at_once:
                    await self._look()
                left = self._left
                if left > 0:
                    await asyncio.sleep(min(left, LOOK_EVERY))
                elif self._brokers.holds_removals(self._link):
                    await asyncio.sleep(HELD)
                else:
                    return self.messages != 0 or self._is_long_ago
        finally:
            await self._leave()

    async def _look(self) -> None:
        found = None
        # The link has to end, whatever is wrong with looking at its queue.
        with self._brokers.errors.catching("look at the queue of an unwanted link", link=self._link.id):
            found = await self._count_in_time()
        self.messages = found
        if found is None:
            await self._leave()
        self.looks += 1

    async def _count_in_time(self) -> int | None:
        try:
            async with asyncio.timeout(LOOK_PATIENCE):
                return await self._count()
        except (BrokerError, TimeoutError):
            return None

    async def _count(self) -> int:
        if self._control is None:
            self._control = await self._brokers.control(self._brokers.federation_ends(self._link).source)
        queue = upstream_queue_name(self._link, self._control.connection.vhost, self._cluster)
        if names.are_too_long(queue):  # nothing was ever built
            return 0
        return await count_messages(self._control, queue)

    async def _leave(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.release()
