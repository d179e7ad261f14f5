"""Queue links as the runtime runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from agent.amqp.connect import Connection
from agent.amqp.data.delivery import Destination
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.questions import count_consumers
from agent.core.addresses.uri import AmqpUri
from agent.core.links.suspicion import Watch
from agent.core.model import Binding, QueueLink
from agent.errors import BrokerError
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import Ends
from agent.links.queue.session import Memory, QueueSession, destination_of, headers_of
from agent.links.queue.timing import Timing
from agent.links.queue.upstream_queue import UpstreamQueues

TRIED_EVERY: Final = 6  # looks


@dataclass
class QueueLinks:
    """What queue links share."""

    brokers: Brokers
    upstream_queues: UpstreamQueues = field(default_factory=UpstreamQueues)
    timing: Timing = field(init=False)

    def __post_init__(self) -> None:
        self.timing = Timing(self.brokers.errors)

    def ends(self, link: QueueLink) -> Ends:
        return self.brokers.federation_ends(link)

    def runnable(self, link: QueueLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableQueueLink:  # noqa: ARG002 - it has no notes
        return RunnableQueueLink(link, self, counts)

    def destination(self, link: QueueLink) -> Destination:
        return destination_of(link)

    def rewriter(self, link: QueueLink, source: Connection, destination: Connection) -> Rewriter:  # noqa: ARG002 - it depends on the source alone
        return headers_of(link, source)


class RunnableQueueLink:
    bound = 0
    known = None
    remaining = None
    notes = ""

    def __init__(self, link: QueueLink, shared: QueueLinks, counts: Counts) -> None:
        self._link = link
        self._shared = shared
        self._counts = counts
        self.memory = Memory()
        self._asked = 0

    @property
    def uri(self) -> AmqpUri | None:
        return self.memory.uri

    @property
    def upstream_cluster(self) -> str | None:
        return self.memory.upstream_cluster

    def inherit(self, former: object) -> None:
        """What was learned of the path holds; nothing else is kept from one session to the next."""
        if isinstance(former, RunnableQueueLink):
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
    ) -> QueueSession:
        shared = self._shared
        return QueueSession(
            self._link,
            connections,
            apart=apart,
            counts=self._counts,
            memory=self.memory,
            brokers=shared.brokers,
            timing=shared.timing,
            upstream_queues=shared.upstream_queues,
        )

    async def is_free(self, queue: str) -> bool:
        """Whether no other consumes exclusively, which is alone then; that can be seen only by trying, now and then."""
        brokers = self._shared.brokers
        async with await brokers.control(brokers.federation_ends(self._link).source) as control:
            consumers = await count_consumers(control.connection, queue)
        self._asked += 1
        return consumers != 1 or self._asked % TRIED_EVERY == 0

    def waits_in(self, vhost: str) -> str | None:  # noqa: ARG002 - it is called the same in each
        return self._link.remote_name

    def removing(self, *, cluster: str, since: float) -> NoReturn:
        """Nothing upstream is ever removed, so there is nothing to wait for: see `QueueLink.cleans_up`."""
        raise NotImplementedError("nothing of a queue link is removed")

    async def remove(self, *, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:  # noqa: ARG002 - nothing is removed
        return None
