"""One exchange link while it runs: what exists upstream for it, its messages, and its upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts, Destination
from agent.amqp.failures import one_line
from agent.core.addresses.uri import AmqpUri
from agent.core.links.reconcile import Wanted
from agent.core.model import Binding, ExchangeLink, QueueType
from agent.core.rules import names
from agent.core.rules.bindings import Route
from agent.core.rules.hops import Site
from agent.errors import Side
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import written_uri
from agent.links.exchange.building import Building
from agent.links.exchange.built import Built
from agent.links.exchange.internal_exchange import InternalExchanges
from agent.links.exchange.lookout import Lookouts
from agent.links.exchange.plugin_type import PluginTypes
from agent.links.exchange.probing import Probing
from agent.links.exchange.received_from import ReceivedFromHeader
from agent.links.exchange.upkeep import Upkeep
from agent.links.flow import Flow
from agent.links.learned import LearnedPath
from agent.links.options import FlowOptions
from agent.links.session import OpenSession
from agent.links.tasks import both
from agent.tasks import run_until_first

LOOK_EVERY: Final = 1.0

Latest = Callable[[], frozenset[Binding]]
"""What is bound downstream, as it is known now."""


@dataclass
class Memory:
    """What a link knows from one session to the next."""

    built: Built = field(default_factory=Built)
    path: LearnedPath = field(default_factory=LearnedPath)
    uri: AmqpUri | None = None
    upstream_cluster: str | None = None


class ExchangeSession(OpenSession[Upkeep]):
    """See `agent.links.kind.Session`."""

    def __init__(
        self,
        link: ExchangeLink,
        *,
        connections: Connections,
        bindings: Latest,
        apart: bool,
        counts: Counts,
        memory: Memory,
        brokers: Brokers,
        plugin_types: PluginTypes,
        lookouts: Lookouts,
        on_noted: Callable[[], None],
    ) -> None:
        super().__init__()
        self._link = link
        self._connections = connections
        self._latest = bindings
        self._apart = apart
        self._counts = counts
        self._memory = memory
        self._brokers = brokers
        self._plugin_types = plugin_types
        self._lookouts = lookouts
        self._on_noted = on_noted
        self._probing: Probing | None = None

    async def keep_up(self) -> None:
        probing = self._probing
        if probing is None:
            await super().keep_up()
        else:
            await run_until_first(super().keep_up(), probing.run(self._open_for_probes))

    async def _open_for_probes(self) -> Shared:
        control, _ = self._controls[0]
        return await self._brokers.probing(self._brokers.federation_ends(self._link).source, control.connection.uri)

    async def open(self) -> None:
        """Connections for messages are opened while it is looked what exists upstream."""
        link = self._link
        ends = self._brokers.federation_ends(link)
        control = await self._connections.ask(ends.source)
        self._controls = [(control, Side.UPSTREAM)]
        connecting = asyncio.ensure_future(
            self._connections.flow(
                ends.source, control.connection.uri, ends.destination, apart=link.id if self._apart else None
            )
        )
        wanted = Wanted(link, route_of(link, control.connection, self._brokers.cluster))
        self._remember(control, wanted.route)
        if self._brokers.is_shared:  # others may begin to build at any moment
            self._memory.built.may_have_rival = True
        building = self._building(control, wanted, first=connecting)
        _, (up, down) = await both(building.prepare(), connecting)
        options = self._options(wanted.queue)
        flow = self.flow = Flow(
            options,
            up=up.connection,
            down=down.connection,
            counts=self._counts,
            path=self._memory.path,
            capture=self._brokers.capture(
                ends.source, up.connection, link=link.id, options=options, is_quorum=options.is_quorum
            ),
            room=self._brokers.room,
        )
        if link.settings.probe is not None:
            flow.probes = self._probing = Probing(
                wanted.queue, link.settings.probe, flow=flow, counts=self._counts, down=down.connection
            )
        starting = asyncio.ensure_future(flow.start(header_of(link, control.connection, wanted.route)))
        bound, _ = await both(self._bind(building, starting), starting)
        self._upkeep = Upkeep(building, flow, self._counts, bound, on_followed=self._on_noted, probing=self._probing)
        self._upkeep.rebind(self._latest())  # they may have changed meanwhile

    def follow(self, bindings: frozenset[Binding]) -> None:
        if self._upkeep is not None:
            self._upkeep.rebind(bindings)

    def _remember(self, control: Shared, route: Route) -> None:
        there, name = control.connection, route.upstream.cluster
        self._memory.uri = written_uri(self._link.uris, there)
        # As it may be shown: the peer chooses it.
        self._memory.upstream_cluster = None if name is None else one_line(there.wire.redacted(name))

    def _options(self, queue: str) -> FlowOptions:
        settings = self._link.settings
        return FlowOptions(
            queue,
            names.consumer_tag(self._link.upstream),
            destination_of(self._link),
            exclusive=True,
            ack_mode=settings.ack_mode,
            prefetch=settings.prefetch_count,
            is_quorum=settings.queue_type is QueueType.QUORUM,
            quarantine_after=settings.quarantine_after,
        )

    def _building(self, control: Shared, wanted: Wanted, *, first: asyncio.Future[tuple[Shared, Shared]]) -> Building:
        return Building(
            wanted,
            control=control,
            built=self._memory.built,
            internal=InternalExchanges(self._brokers, self._plugin_types, self._link, control=control, first=first),
            lookout=self._lookouts.of(control),
        )

    async def _bind(self, building: Building, starting: asyncio.Future[None]) -> frozenset[Binding]:
        """What waits in the queue flows while bindings are still made: there may be very many of them.

        They are followed while messages can't flow yet, too: a downstream may be blocked for hours.
        """
        if building.may_have_rival or building.replaces:
            await _settled_soon(starting)
        bound = self._latest()
        await building.complete(bound, holds_queue=starting.done())
        while not starting.done():
            await asyncio.wait([starting], timeout=LOOK_EVERY)
            if self._latest() is not bound:
                bound = self._latest()
                await building.follow(bound)
        await starting
        await building.replace(bound, still=self._check_ends)
        return bound

    def _check_ends(self) -> None:
        """Raises BrokerError where the queue is no longer held."""
        ended = next((end for end in self.ends if end.done()), None)
        if ended is not None:
            raise self.explain(ended)


async def _settled_soon(starting: asyncio.Future[None]) -> None:
    """Of agents that take a link over at the same moment only the one that gets the queue is to bind: it couldn't know
    what others have bound to the same internal exchange.
    """
    await asyncio.wait([starting], timeout=LOOK_EVERY)
    if starting.done():
        starting.result()


def route_of(link: ExchangeLink, there: Connection, cluster: str) -> Route:
    upstream = Site(there.server.cluster_name, there.vhost)
    return Route(upstream, Site(cluster, link.vhost), link.name, link.settings.max_hops)


def header_of(link: ExchangeLink, there: Connection, route: Route) -> ReceivedFromHeader:
    settings = link.settings
    return ReceivedFromHeader(
        str(written_uri(link.uris, there)),
        link.name,
        upstream=route.upstream,
        downstream=route.downstream,
        max_hops=settings.max_hops,
        trust_user_id=settings.trust_user_id,
    )


def destination_of(link: ExchangeLink) -> Destination:
    return Destination(link.name)
