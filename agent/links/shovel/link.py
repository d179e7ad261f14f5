"""Shovels as the runtime runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from agent.amqp.connect import Connection
from agent.amqp.data.delivery import Destination
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.questions import count_consumers
from agent.core.addresses.uri import AmqpUri
from agent.core.links.restarts import asks_the_same
from agent.core.links.suspicion import Watch
from agent.core.model import Binding, QueueSource, ShovelLink
from agent.errors import BrokerError
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import Ends
from agent.links.shovel.ends import shovel_ends
from agent.links.shovel.session import Memory, ShovelSession, destination_of, rewriter_of


@dataclass
class ShovelLinks:
    brokers: Brokers

    def ends(self, link: ShovelLink) -> Ends:
        return shovel_ends(link, self.brokers.downstream)

    def runnable(self, link: ShovelLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableShovel:  # noqa: ARG002 - it has no notes
        return RunnableShovel(link, self, counts)

    def destination(self, link: ShovelLink) -> Destination:
        return destination_of(link)

    def rewriter(self, link: ShovelLink, source: Connection, destination: Connection) -> Rewriter:
        return rewriter_of(link, source, destination, cluster=self.brokers.cluster)


class RunnableShovel:
    bound = 0
    known = None
    notes = ""
    upstream_cluster = None

    def __init__(self, link: ShovelLink, shared: ShovelLinks, counts: Counts) -> None:
        self.link = link
        self._shared = shared
        self._counts = counts
        self.memory = Memory()

    @property
    def uri(self) -> AmqpUri | None:
        return self.memory.uri

    @property
    def remaining(self) -> int | None:
        return self.memory.until.remaining

    def inherit(self, former: object) -> None:
        """The count of what is left to move goes on, unless the definition is another one: then it begins anew."""
        if isinstance(former, RunnableShovel) and asks_the_same(former.link, self.link):
            self.memory = former.memory

    def was_served_by_another(self) -> None:
        """It declares what it needs each time."""

    def is_suspected(self, now: float) -> bool:
        return self.memory.path.suspicion.watch(now) is not Watch.OFF

    def session(
        self,
        connections: Connections,
        bindings: Callable[[], frozenset[Binding]],  # noqa: ARG002 - it copies none
        *,
        apart: bool,
    ) -> ShovelSession:
        return ShovelSession(
            self.link,
            connections,
            self._shared.ends(self.link),
            apart=apart,
            counts=self._counts,
            memory=self.memory,
            brokers=self._shared.brokers,
        )

    async def is_free(self, queue: str) -> bool:
        async with await self._shared.brokers.control(self._shared.ends(self.link).source) as control:
            return not await count_consumers(control.connection, queue)

    def waits_in(self, vhost: str) -> str | None:  # noqa: ARG002 - it is called the same in each
        """A queue that it makes for itself goes with its session."""
        source = self.link.shovel.source
        return source.queue if isinstance(source, QueueSource) else None

    def removing(self, *, cluster: str, since: float) -> NoReturn:
        """What it declared stays, so there is nothing to wait for: see `ShovelLink.cleans_up`."""
        raise NotImplementedError("nothing of a shovel is removed")

    async def remove(self, *, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:  # noqa: ARG002 - nothing is removed
        return None
