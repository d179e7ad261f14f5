"""One exchange link while it runs: what stands upstream for it, and its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.core.links.plan import upstream_queue_name
from agent.core.model import Binding, Exchange, Link
from agent.core.rules.bindings import Route
from agent.core.rules.hops import Site
from agent.errors import BrokerError
from agent.links.brokers import own_uri
from agent.links.exchange.building import Building, Built
from agent.links.exchange.internal_exchange import InternalExchanges
from agent.links.exchange.lookout import Lookout
from agent.links.exchange.received_from import ReceivedFromHeader
from agent.links.flow import Flow, LearnedPath
from agent.links.tasks import both

LOOK_EVERY: Final = 1.0

Latest = Callable[[], frozenset[Binding]]
"""What is bound downstream, as it is known now."""


@dataclass
class Memory:
    """What a link knows from one session to the next."""

    built: Built = field(default_factory=Built)
    path: LearnedPath = field(default_factory=LearnedPath)


class ExchangeSession:
    """`prepare` and then `open` may raise BrokerError; the flow's `leave` always comes last."""

    def __init__(
        self,
        link: Link,
        exchange: Exchange,
        *,
        control: Shared,
        cluster: str,
        memory: Memory,
        internal: InternalExchanges,
        lookout: Lookout,
    ) -> None:
        self.link = link
        there = control.connection
        self.uri = own_uri(link, there)
        self.queue = upstream_queue_name(link, there.vhost, cluster)
        self._route = Route(
            Site(there.server.cluster_name, there.vhost), Site(cluster, link.vhost), link.name, link.settings.max_hops
        )
        self.building = Building(
            link,
            exchange,
            self.queue,
            control=control,
            route=self._route,
            built=memory.built,
            internal=internal,
            lookout=lookout,
        )
        self.flow: Flow | None = None
        self._control = there
        self._path = memory.path

    @property
    def upstream_cluster(self) -> str | None:
        """As it may be shown: the peer chooses it."""
        name = self._route.upstream.cluster
        return None if name is None else self._control.wire.redacted(name)

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        """What breaks the link when it is done."""
        return [self._control.wire.closed, *(self.flow.ends if self.flow else ())]

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """Why the link broke, with the side."""
        return self.flow.explain(end) if self.flow else end.result()

    async def prepare(self) -> None:
        await self.building.prepare()

    async def open(self, bindings: Latest, *, up: Shared, down: Shared, counts: Counts) -> Flow:
        """What waits in the queue flows while bindings are still made: there may be very many of them."""
        flow = self.flow = Flow(
            self.link, self.queue, up=up.connection, down=down.connection, counts=counts, path=self._path
        )
        starting = asyncio.ensure_future(flow.start(self._received_from_header(), exchange=self.link.name))
        await both(self._bind(bindings, starting), starting)
        return flow

    async def _bind(self, latest: Latest, starting: asyncio.Future[None]) -> None:
        """Goes on following bindings while the messages' way isn't open: a downstream may be blocked for hours."""
        bound = latest()
        await self.building.complete(bound)
        while not starting.done():
            await asyncio.wait([starting], timeout=LOOK_EVERY)
            if latest() is not bound:
                bound = latest()
                await self.building.follow(bound)

    def _received_from_header(self) -> ReceivedFromHeader:
        settings = self.link.settings
        return ReceivedFromHeader(
            str(self.uri),
            self.link.name,
            upstream=self._route.upstream,
            downstream=self._route.downstream,
            max_hops=settings.max_hops,
            trust_user_id=settings.trust_user_id,
        )
