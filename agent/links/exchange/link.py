"""An exchange link as the runtime runs it, and one session of it: what exists upstream, its messages, its upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.rewriting import Destination, Rewriter
from agent.amqp.data.splice import Counts
from agent.core.links.reconcile import leads_elsewhere
from agent.core.links.upstream_steps import Known, Wanted, upstream_queue_name
from agent.core.model import Binding, ExchangeLink, QueueType
from agent.core.rules import names
from agent.core.rules.hops import Route, Site
from agent.errors import Side
from agent.links.brokers import Brokers, Connections
from agent.links.ends import written_uri
from agent.links.exchange.builder import Builder
from agent.links.exchange.deletion_monitor import DeletionMonitor
from agent.links.exchange.probing import Probing
from agent.links.exchange.received_from import ReceivedFromHeader
from agent.links.exchange.removal import ExchangeCleanup
from agent.links.exchange.upkeep import ExchangeUpkeep
from agent.links.exchange.upstream_objects import InternalExchanges, PluginTypes, UpstreamState
from agent.links.flow_options import FlowOptions
from agent.links.kind import Kind, RunnableLink, Session
from agent.tasks import gather_both, run_until_first

LOOK_EVERY: Final = 1.0


class ExchangeLinks(Kind[ExchangeLink]):
    """All exchange links of an agent. They share what was found out about upstream brokers, and the monitors of what
    exists there."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.plugin_types = PluginTypes()
        self.monitors: WeakKeyDictionary[Shared, DeletionMonitor] = WeakKeyDictionary()

    def runnable(self, link: ExchangeLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableExchangeLink:
        return RunnableExchangeLink(self, link, counts, on_noted)

    def destination(self, link: ExchangeLink) -> Destination:
        return Destination(link.name)

    def rewriter(self, link: ExchangeLink, source: Connection, _destination: Connection, /) -> Rewriter:
        return header_of(link, source, route_of(link, source, self.brokers.cluster))


class RunnableExchangeLink(RunnableLink[ExchangeLink]):
    kind: ExchangeLinks

    def __init__(self, kind: ExchangeLinks, link: ExchangeLink, counts: Counts, on_noted: Callable[[], None]) -> None:
        super().__init__(kind, link, counts, on_noted)
        self.built = UpstreamState()
        self.cleanup = ExchangeCleanup(link, self.brokers, lambda: self.built)

    @property
    def bound(self) -> int:
        return len(self.built.bound)

    @property
    def known(self) -> Known | None:
        return self.built.known

    @property
    def notes(self) -> str:
        return self.built.notes

    def inherit(self, former: RunnableLink[Any]) -> None:
        """Keep what the former link built, unless this one leads elsewhere; what of it no longer fits is replaced."""
        if not isinstance(former, RunnableExchangeLink):
            return
        if not leads_elsewhere(map(str, former.link.uris), map(str, self.link.uris)):
            self.built = former.built

    def forget_after_other(self) -> None:
        """Forget what is bound: the internal exchange may be another one of the same name, with other bindings or
        none."""
        self.built.letter = None
        self.built.may_have_rival = True

    def session(self, connections: Connections, *, dedicated: bool) -> ExchangeSession:
        return ExchangeSession(self, connections, dedicated=dedicated)

    def waits_in(self, vhost: str, /) -> str | None:
        queue = upstream_queue_name(self.link, vhost, self.brokers.cluster)
        return None if names.are_too_long(queue) else queue


class ExchangeSession(Session[RunnableExchangeLink]):
    _upkeep: ExchangeUpkeep | None
    _probing: Probing | None = None

    async def keep_up(self) -> None:
        probing = self._probing
        if probing is None:
            await super().keep_up()
        else:
            await run_until_first(super().keep_up(), probing.run(self._open_for_probes))

    async def _open_for_probes(self) -> Shared:
        control, _ = self._controls[0]
        return await self._brokers.probing(self._runnable.ends.source, control.connection.uri)

    async def open(self) -> None:
        """Open the session; connections for messages are opened while what exists upstream is looked at."""
        link, ends = self._runnable.link, self._ends
        control = await self._connections.ask(ends.source)
        self._controls = [(control, Side.UPSTREAM)]
        connecting = asyncio.ensure_future(
            self._connections.flow(ends.source, control.connection.uri, ends.destination, dedicated=self._dedicated)
        )
        wanted = Wanted(link, route_of(link, control.connection, self._brokers.cluster))
        self._runnable.uri = written_uri(link.uris, control.connection)
        self._runnable.upstream_cluster = control.connection.cluster
        if self._brokers.is_shared:  # others may begin to build at any moment
            self._runnable.built.may_have_rival = True
        building = self._building(control, wanted, first=connecting)
        _, (up, down) = await gather_both(building.prepare(), connecting)
        options = self._options(wanted.queue)
        flow = self._new_flow(options, up.connection, down.connection, is_quorum=options.is_quorum)
        if link.settings.probe is not None:
            flow.probes = self._probing = Probing(
                wanted.queue, link.settings.probe, flow=flow, counts=self._runnable.counts, down=down.connection
            )
        starting = asyncio.ensure_future(flow.start(header_of(link, control.connection, wanted.route)))
        bound, _ = await gather_both(self._bind(building, starting), starting)
        self._upkeep = ExchangeUpkeep(
            building,
            flow,
            self._runnable.counts,
            bound,
            monitor=self._runnable.kind.monitors.setdefault(control, DeletionMonitor(control, self._brokers.errors)),
            on_followed=self._runnable.on_noted,
            probing=self._probing,
        )
        self._upkeep.rebind(self._runnable.bindings)  # they may have changed meanwhile

    def follow(self) -> None:
        if self._upkeep is not None:
            self._upkeep.rebind(self._runnable.bindings)

    def _options(self, queue: str) -> FlowOptions:
        link, settings = self._runnable.link, self._runnable.link.settings
        return FlowOptions(
            queue,
            names.consumer_tag(link.upstream),
            Destination(link.name),
            exclusive=True,
            ack_mode=settings.ack_mode,
            prefetch=settings.prefetch_count,
            is_quorum=settings.queue_type is QueueType.QUORUM,
            quarantine_after=settings.quarantine_after,
        )

    def _building(self, control: Shared, wanted: Wanted, *, first: asyncio.Future[tuple[Shared, Shared]]) -> Builder:
        runnable, brokers = self._runnable, self._brokers

        async def spare() -> Connection:
            """Open a connection that may be lost, after those that the link needs."""
            await asyncio.wait([first])
            return await brokers.trial(runnable.ends.source, control.connection.uri)

        internal = InternalExchanges(runnable.kind.plugin_types, control, spare=spare)
        return Builder(wanted, control=control, built=runnable.built, internal=internal, spare=spare)

    async def _bind(self, building: Builder, starting: asyncio.Future[None]) -> frozenset[Binding]:
        """Bind everything, and return the bindings. Messages that wait in the queue flow meanwhile: there may be very
        many bindings.

        Changed bindings are followed while messages can't flow yet, too: a downstream may be blocked for hours.
        """
        if building.built.may_have_rival or building.replaces:
            await _settled_soon(starting)
        bound = self._runnable.bindings
        await building.complete(bound, holds_queue=starting.done())
        while not starting.done():
            await asyncio.wait([starting], timeout=LOOK_EVERY)
            if self._runnable.bindings is not bound:
                bound = self._runnable.bindings
                await building.follow(bound)
        await starting
        await building.replace(bound, still=self._check_ends)
        return bound

    def _check_ends(self) -> None:
        """Raise BrokerError if the queue is no longer held."""
        ended = next((end for end in self.ends if end.done()), None)
        if ended is not None:
            raise self.explain(ended)


async def _settled_soon(starting: asyncio.Future[None]) -> None:
    """Give the flow a moment to start, and raise its error if it can't. Of agents that take a link over at the same
    moment only the one that gets the queue is to bind: it couldn't know what others have bound to the same internal
    exchange."""
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
