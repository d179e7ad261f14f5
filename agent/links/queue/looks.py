"""What is seen of the queue that a link serves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from agent.amqp.connection_pool import Shared
from agent.amqp.questions import look_into
from agent.core.links.demand import Look
from agent.downstream.consumers import Consumers
from agent.errors import Side, happening_on


@dataclass(frozen=True, slots=True)
class LocalQueue:
    vhost: str
    name: str
    control: Shared
    consumers: Consumers

    async def look(self) -> Look | None:
        """None before it is known which of its consumers are links themselves."""
        with happening_on(Side.DOWNSTREAM):
            ready, consumers = await look_into(self.control, self.name)
        below = self.consumers.below_zero(self.vhost, self.name)
        if consumers and below is None:
            return None
        return Look(ready, max(0, consumers - (below or 0)))

    def watching(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """`wake` is called when its consumers have come or gone."""
        return self.consumers.watching(self.vhost, self.name, wake)

    @property
    def is_heard(self) -> bool:
        """Whether events report that."""
        return self.consumers.is_heard
