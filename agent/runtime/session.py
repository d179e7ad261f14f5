"""One exchange link while it runs: what stands upstream for it, and its messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.amqp.pool import Shared
from agent.amqp.stamp import Stamp
from agent.amqp.wire.splice import Counts
from agent.core.bindings import Route
from agent.core.hops import Site
from agent.core.model import Binding, Exchange, Link
from agent.core.plan import upstream_queue_name
from agent.runtime.building import Building, Built
from agent.runtime.flow import Flow, Path
from agent.runtime.internal import InternalExchanges
from agent.runtime.tasks import both


@dataclass
class Memory:
    """What a link knows from one session to the next."""

    built: Built = field(default_factory=Built)
    path: Path = field(default_factory=Path)


class ExchangeSession:
    """`open` may raise BrokerError; the flow's `leave` always comes last."""

    def __init__(
        self,
        link: Link,
        exchange: Exchange,
        *,
        up: Shared,
        down: Shared,
        cluster: str,
        counts: Counts,
        memory: Memory,
        internal: InternalExchanges,
    ) -> None:
        self.link = link
        there = up.connection
        self.queue = upstream_queue_name(link, there.vhost, cluster)
        self._route = Route(
            Site(there.server.cluster_name, there.vhost), Site(cluster, link.vhost), link.name, link.settings.max_hops
        )
        self.building = Building(
            link,
            exchange,
            self.queue,
            up=up,
            route=self._route,
            built=memory.built,
            internal=internal,
        )
        self.flow = Flow(link, self.queue, up=there, down=down.connection, counts=counts, path=memory.path)

    @property
    def upstream_cluster(self) -> str | None:
        return self._route.upstream.cluster

    async def open(self, bindings: Iterable[Binding]) -> None:
        """What waits in the queue flows while bindings are still made: there may be very many of them."""
        await self.building.prepare()
        await both(self.building.complete(bindings), self.flow.start(self._stamp(), exchange=self.link.name))

    def _stamp(self) -> Stamp:
        settings = self.link.settings
        return Stamp(
            str(self.link.uris[0]),
            self.link.name,
            upstream=self._route.upstream,
            downstream=self._route.downstream,
            max_hops=settings.max_hops,
            trust_user_id=settings.trust_user_id,
        )
