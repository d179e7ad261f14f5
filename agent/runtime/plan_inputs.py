"""Looks at both ends of every link that should exist, and passes the results to the core's plan.

Sources of shovels are looked at as upstreams are, their destinations by themselves.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from agent.amqp.connect import Connection, connect_any
from agent.amqp.declares import Found, ObjectFound, Presence, probe
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp10.terminus import Terminus, address_refused, ask_for_address, may_be_declared
from agent.core.addresses.uri import AmqpUri
from agent.core.links.plan import Action, Downstream, Plan, RunningLink, Sight, plan_declarations, plan_link
from agent.core.links.reconcile import leads_elsewhere
from agent.core.links.upstream_steps import QueueSeen, Seen, upstream_queue_name
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ExchangeLink,
    ExchangeSource,
    Link,
    QueueDestination,
    QueueLink,
    QueueSource,
    ShovelLink,
)
from agent.core.rules import names
from agent.core.rules.hops import Site
from agent.core.rules.resolve import resolving
from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration
from agent.downstream.bindings import BindingsRead, read_bindings
from agent.downstream.read import read_downstream
from agent.downstream.reading import CONNECTION_NAME, Bindings, DefinitionSource, Reading
from agent.errors import UNKNOWN, BrokerError, ConfigurationError, Problem, Severity
from agent.links.ends import End, reachable, shovel_ends, wired
from agent.slices import steps_in_slices

PATIENCE: Final = 10.0  # seconds for a broker to let us in; others go on meanwhile
AT_ONCE: Final = 20  # connections


@dataclass(frozen=True, slots=True)
class PlanInputs:
    reading: Reading
    plan: Plan
    problems: tuple[Problem, ...]
    bindings: Bindings = field(default_factory=dict)
    """Those of the federated exchanges."""
    without_credit: frozenset[str] = frozenset()
    """The ids of links whose destination gives no credit."""


class Agent(Protocol):
    """A running agent that uses this configuration."""

    @property
    def cluster(self) -> str | None:
        """The name of the downstream cluster that the agent runs beside."""

    async def links(self) -> Sequence[RunningLink]: ...


async def read_plan_inputs(configuration: Configuration, agent: Agent | None = None) -> PlanInputs:
    """The inputs of the plan and the plan itself: what `run` would find and do. Changes nothing anywhere. Raises
    ConfigurationError where sources conflict.

    With `agent` it is what that one would do next; otherwise what one does that starts and knows nothing yet.
    """
    keeper = Keeper()
    keeper.take(DefinitionSource.CONFIGURATION, lambda: configuration.reading)
    reading = await read_downstream(configuration, keeper)
    if keeper.refusals:
        raise ConfigurationError(keeper.refusals)
    resolution = await steps_in_slices(resolving(reading.definitions, reading.states, clock=time.thread_time))
    read = await read_bindings(configuration, reading, resolution.links)
    links = tuple(reading.judged(link, has_known_bindings=False) for link in resolution.links)
    downstream = Downstream(reading.broker, reading.cluster, read.bindings, reading.native_links)
    uris = configuration.settings.downstream.uris
    sights = await _look(
        ((link, _source(link, uris)) for link in links),
        partial(_source_names, cluster=reading.cluster),
        partial(_source_sight, cluster=reading.cluster),
    )
    shovels = ((link, shovel_ends(link, uris).destination) for link in links if isinstance(link, ShovelLink))
    destinations = await _look(shovels, _destination_names, _destination_sight)
    sights |= {link_id: replace(sights[link_id], destination=seen) for link_id, seen in destinations.items()}
    ended: tuple[RunningLink, ...] = ()
    if agent is not None and agent.cluster == reading.cluster:
        of_agent = {link.id: link for link in await agent.links()}
        running = _Running(of_agent, frozenset(link.id for link in links), reading.cluster)
        sights = {link.id: running.add_known(link, sights[link.id]) for link in links}
        ended = tuple(running.ended)
    plan = Plan(
        downstream=_declarations(downstream, reading),
        links=tuple(plan_link(link, _with_bindings(link, sights[link.id], read), downstream) for link in links),
        ended=ended,
    )
    found = (*keeper.problems, *reading.problems, *read.problems, *resolution.unjudged)
    without_credit = frozenset(link_id for link_id, seen in destinations.items() if not seen.gives_credit)
    not_run = (each for each in resolution.problems if each.severity is Severity.NOT_RUN)  # links show theirs
    problems = (*found, *reading.warnings, *not_run)
    return PlanInputs(reading, plan, problems, read.bindings, without_credit)


def _with_bindings(link: Link, sight: Sight, read: BindingsRead) -> Sight:
    """Note as an error that the bindings of a link's exchange can't be read: without them a link doesn't start, and one
    that runs keeps those that it has."""
    if not isinstance(link, ExchangeLink) or sight.error is not None or (link.vhost, link.name) in read.bindings:
        return sight
    return replace(sight, error="the bindings of its exchange can't be read: see the problems")


@dataclass(frozen=True, slots=True)
class _Running:
    """The links of a running agent, compared with those that should exist."""

    links: Mapping[str, RunningLink]
    wanted: frozenset[str]
    cluster: str

    @property
    def ended(self) -> list[RunningLink]:
        return [link for link in self.links.values() if link.id not in self.wanted]

    def add_known(self, link: Link, sight: Sight) -> Sight:
        running = self.links.get(link.id)
        if running is None:
            return replace(sight, is_served_by_agent=self._takes_over(link, sight))
        if not isinstance(link, ExchangeLink):
            return replace(sight, running=running)
        if leads_elsewhere(running.uris, map(str, link.uris)):
            return sight
        seen = replace(sight.seen, known=running.known)
        return replace(sight, seen=seen, is_served_by_agent=running.is_consuming, running=running)

    def _takes_over(self, link: Link, sight: Sight) -> bool:
        """True if a link that is no longer wanted consumes from the queue, as that of a renamed upstream does."""
        if not isinstance(link, ExchangeLink) or sight.site is None:
            return False
        queue = sight.site, upstream_queue_name(link, sight.site.vhost, self.cluster)
        return any(
            former.is_consuming and former.known is not None and (former.known.site, former.known.queue) == queue
            for former in self.ended
        )


def _declarations(downstream: Downstream, reading: Reading) -> tuple[Action, ...]:
    return tuple(
        action
        for vhost, found in sorted(reading.definitions.vhosts.items())
        for action in plan_declarations(
            downstream,
            vhost,
            found.exchanges.values(),
            reading.states[vhost].exchanges if vhost in reading.states else {},
        )
    )


Names = tuple[set[str], set[str]]
"""Of queues and exchanges."""
LinkT = TypeVar("LinkT", bound=Link)


async def _look(
    ends: Iterable[tuple[LinkT, End]],
    names_of: Callable[[LinkT, Site], Names],
    sight: Callable[[LinkT, str, Site, Found], Sight],
) -> dict[str, Sight]:
    """Look at the broker at an end of each link: for its names, which `sight` then judges."""
    by_end: dict[End, list[LinkT]] = defaultdict(list)
    for link, end in ends:
        by_end[end].append(link)
    gate = asyncio.Semaphore(AT_ONCE)

    async def look_at(end: End, links: list[LinkT]) -> dict[str, Sight]:
        broker = str(end.uris[0])
        connect = partial(
            connect_any,
            where=end.where,
            name=CONNECTION_NAME,
            default_vhost=end.default_vhost,
            within=PATIENCE,
            wired=wired(end.terminus, CONNECTION_NAME),
        )
        try:
            async with gate, await connect(random.sample(end.uris, len(end.uris))) as connection:
                broker = str(connection.uri)
                site = Site(connection.server.cluster_name, connection.vhost)
                if end.terminus is not None:
                    seen = _sights_of_address(connection, end.terminus, await ask_for_address(connection, end.terminus))
                    return {link.id: seen(link, broker, site) for link in links}
                asked = [names_of(link, site) for link in links]
                found = await probe(
                    connection,
                    queues=set[str]().union(*(queues for queues, _ in asked)),
                    exchanges=set[str]().union(*(exchanges for _, exchanges in asked)),
                    spare=partial(connect, [connection.uri]),
                )
        except BrokerError as error:
            unseen = Sight(broker, error=str(error), failure=error.failure)
            return {link.id: unseen for link in links}
        return {link.id: sight(link, broker, site, found) for link in links}

    sights = await asyncio.gather(*(look_at(end, links) for end, links in by_end.items()))
    return {link_id: seen for of_end in sights for link_id, seen in of_end.items()}


def _sights_of_address(
    connection: Connection, terminus: Terminus, answer: Call | ChannelClosedError | None
) -> Callable[[Link, str, Site], Sight]:
    """The function that turns the broker's answer about an address into the sight of each link that it is an end of."""

    def sight(link: Link, broker: str, site: Site) -> Sight:
        place = None
        if isinstance(link, ShovelLink):
            place = link.shovel.source if terminus.is_source else link.shovel.destination
        is_declared = isinstance(place, AddressSource | AddressDestination) and not place.is_predeclared
        if is_declared and may_be_declared(connection, terminus, answer):
            return Sight(broker, site, declares_queue=True)
        if isinstance(answer, ChannelClosedError):
            error = address_refused(connection, terminus, answer)
            return Sight(broker, site, error=str(error), failure=error.failure)
        if answer is None:
            return Sight(broker, site)
        if not terminus.is_source:
            return Sight(broker, site, gives_credit=answer["consumers"] > 0)
        if not (terminus.is_queue and connection.server.shows_queues):
            return Sight(broker, site)
        return Sight(broker, site, Seen(queue=QueueSeen(answer["messages"], answer["consumers"])))

    return sight


def _source(link: Link, downstream: Sequence[AmqpUri]) -> End:
    if isinstance(link, ShovelLink):
        return shovel_ends(link, downstream).source
    return End(f"upstream {link.upstream}", reachable(link.uris, link.vhost, downstream), link.vhost)


def _queue_of(link: Link, site: Site, cluster: str) -> str | None:
    match link:
        case ExchangeLink():
            return upstream_queue_name(link, site.vhost, cluster)
        case QueueLink():
            return link.remote_name
        case ShovelLink():
            source = link.shovel.source
            return source.queue if isinstance(source, QueueSource) else None


def _exchange_of(link: Link) -> str:
    if isinstance(link, ShovelLink) and isinstance(link.shovel.source, ExchangeSource):
        return link.shovel.source.exchange
    return link.remote_name


def _source_names(link: Link, site: Site, *, cluster: str) -> Names:
    queue = _queue_of(link, site, cluster)
    if queue is None:
        return set(), {*filter(None, [_exchange_of(link)])}
    if isinstance(link, ShovelLink) and link.shovel.reads_stream:
        return {queue, names.stream_offset(link.vhost, link.name, cluster)}, set()
    if not isinstance(link, ExchangeLink):
        return {queue}, set()
    internal = (names.internal_exchange(queue, letter) for letter in names.LETTERS)
    canary = names.canary(link.remote_name, queue, site.vhost)
    return {queue}, {link.remote_name, *internal, *filter(None, [canary])}


def _source_sight(link: Link, broker: str, site: Site, standing: Found, *, cluster: str) -> Sight:
    queue = _queue_of(link, site, cluster) or ""
    found = standing.queues.get(queue)
    if found is not None and found.presence not in {Presence.EXISTS, Presence.MISSING}:
        failure = replace(found.failure or UNKNOWN, is_permanent=True)
        return Sight(broker, site, error=f"queue {queue!r} upstream: {found.detail}", failure=failure)
    exist = {name for name, seen in standing.exchanges.items() if seen.presence is Presence.EXISTS}
    offsets = standing.queues.get(names.stream_offset(link.vhost, link.name, cluster))
    return Sight(
        broker,
        site,
        Seen(
            exchange_exists=_exchange_of(link) in exist,
            queue=_queue_seen(found),
            letters=tuple(letter for letter in names.LETTERS if names.internal_exchange(queue, letter) in exist),
            canary_exists=names.canary(link.remote_name, queue, site.vhost) in exist,
            remembers_offset=offsets is not None and offsets.presence is Presence.EXISTS,
        ),
    )


def _queue_seen(found: ObjectFound | None) -> QueueSeen | None:
    if found is None or found.presence is not Presence.EXISTS:
        return None
    return QueueSeen(found.messages, found.consumers)


def _destination_names(link: ShovelLink, _: Site) -> Names:
    destination = link.shovel.destination
    if isinstance(destination, QueueDestination):
        return {destination.queue}, set()
    return set(), {*filter(None, [destination.keys.get("dest-exchange")])}


def _destination_sight(link: ShovelLink, broker: str, site: Site, found: Found) -> Sight:
    destination = link.shovel.destination
    if isinstance(destination, QueueDestination):
        queue = found.queues[destination.queue]
        if queue.presence not in {Presence.EXISTS, Presence.MISSING}:
            error = f"shovel destination: queue {destination.queue!r}: {queue.detail}"
            failure = replace(queue.failure or UNKNOWN, is_permanent=queue.presence is Presence.REFUSED)
            return Sight(broker, site, error=error, failure=failure)
        return Sight(broker, site, Seen(queue=_queue_seen(queue)))
    exchange = found.exchanges.get(destination.keys.get("dest-exchange", ""))
    return Sight(broker, site, Seen(exchange_exists=exchange is not None and exchange.presence is Presence.EXISTS))
