"""Several agents' definitions → one graph: which upstream is whose downstream."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from agent.core.addresses.uri import AmqpUri
from agent.core.model import (
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    Link,
    QueueLink,
    ShovelLink,
    ShovelPlace,
)
from agent.core.topology.directory import Directory
from agent.core.topology.graph import Carrier, End, Graph, Hop, Node
from agent.core.topology.members import Member, supposed_names


def graph_of(members: Iterable[Member], exchanges: Collection[str] = ()) -> Graph:
    """The federated exchanges."""
    members = tuple(members)
    named = frozenset(exchanges) or supposed_names(members)
    directory = Directory(members)
    hops = {
        Hop(
            Node(directory.cluster_of(link.uris, member), link.uris[0].vhost(link.vhost), link.remote_name),
            Node(member.cluster, link.vhost, link.name),
            link.settings.max_hops,
        )
        for member in members
        for link in member.links(named)
        if isinstance(link, ExchangeLink)
    }
    return Graph(tuple(sorted(hops, key=lambda hop: (hop.upstream, hop.downstream, hop.max_hops))))


def carriers_of(members: Iterable[Member], queues: Collection[str] = ()) -> tuple[Carrier, ...]:
    """The queue links and shovels."""
    members = tuple(members)
    named = frozenset(queues) or supposed_names(members, of_queues=True)
    directory = Directory(members)
    found = {
        carrier
        for member in members
        for link in member.links((), named)
        for carrier in [_carrier(link, member, directory)]
        if carrier is not None
    }
    return tuple(sorted(found))


def _carrier(link: Link, member: Member, directory: Directory) -> Carrier | None:
    match link:
        case QueueLink():
            cluster, vhost = directory.cluster_of(link.uris, member), link.uris[0].vhost(link.vhost)
            source = End(cluster, vhost, "queue", link.remote_name)
            return Carrier("queue", link.name, source, End(member.cluster, link.vhost, "queue", link.name))
        case ShovelLink(shovel=shovel):
            return Carrier(
                "shovel",
                link.name,
                _end(shovel.source, shovel.source_uris, member, directory),
                _end(shovel.destination, shovel.destination_uris, member, directory),
            )
        case _:
            return None


def _end(place: ShovelPlace, uris: tuple[AmqpUri, ...], member: Member, directory: Directory) -> End:
    cluster, vhost = directory.cluster_of(uris, member), uris[0].vhost("/")
    if isinstance(place, ExchangeSource | ExchangeDestination):
        name = "each message's own exchange" if place.exchange is None else place.exchange or "(default exchange)"
        return End(cluster, vhost, "exchange", name)
    return End(cluster, vhost, "queue", place.queue)
