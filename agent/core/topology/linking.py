"""Several agents' definitions → one graph, and the upstreams that no member is known to be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.core.addresses.rabbitmq_address import node_at
from agent.core.addresses.uri import AmqpUri
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    Link,
    QueueLink,
    ShovelLink,
    ShovelPlace,
)
from agent.core.topology.graph import Carrier, CarrierEnd, Graph, Hop, Node
from agent.core.topology.members import Address, Member, address_of, address_text, is_loopback, supposed_names


class Directory:
    """The clusters that addresses belong to, by the addresses of all members."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._by_address: dict[Address, set[str]] = {}
        self._by_host: dict[str, set[str]] = {}
        members = tuple(members)
        self._clusters = frozenset(member.cluster for member in members)
        for member in members:
            for host, port in member.addresses:
                self._by_address.setdefault((host, port), set()).add(member.cluster)
                if not is_loopback(host):
                    self._by_host.setdefault(host, set()).add(member.cluster)

    def cluster_of(self, uris: tuple[AmqpUri, ...], member: Member) -> str:
        """The name of the cluster that the URIs lead to; one that no member runs beside is called by its address."""
        address = address_text(uris[0])
        return self.find(uris, member) or (f"{address} of {member.cluster}" if address in self._clusters else address)

    def find(self, uris: Iterable[AmqpUri], member: Member) -> str | None:
        """The name of the cluster that the URIs of a member lead to; None if they are no member's.

        The port may be another than the member's own, such as that for TLS. A loopback address leads from one member to
        another only if both use such addresses, as where all run on one host."""
        uris = tuple(uris)
        if any(uri.is_downstream_itself or address_of(uri) in member.addresses for uri in uris):
            return member.cluster
        is_local = any(is_loopback(host) for host, _ in member.addresses)
        for uri in uris:
            host, _ = address = address_of(uri)
            if is_loopback(host) and not is_local:
                continue
            for found in (self._by_address.get(address, ()), self._by_host.get(host, ())):
                if len(found) == 1:
                    return next(iter(found))
        return None

    def is_hidden(self, member: Member) -> bool:
        """True if no other cluster can know the member by its addresses: they lead to whatever host they are used on,
        or others have them too."""
        return all(is_loopback(host) or not self.is_unique((host, port)) for host, port in member.addresses)

    def is_unique(self, address: Address) -> bool:
        """True if exactly one cluster has the address."""
        return len(self._by_address.get(address, ())) == 1


def graph_of(members: Iterable[Member], exchanges: Collection[str] = ()) -> Graph:
    """The graph of the federated exchanges."""
    members = tuple(members)
    directory = Directory(members)
    hops = {
        Hop(
            Node(directory.cluster_of(link.uris, member), link.uris[0].vhost(link.vhost), link.remote_name),
            Node(member.cluster, link.vhost, link.name),
            link.settings.max_hops,
        )
        for member, link in _exchange_links(members, exchanges)
    }
    return Graph(tuple(sorted(hops, key=lambda hop: (hop.upstream, hop.downstream, hop.max_hops))))


def _exchange_links(members: Sequence[Member], names: Collection[str]) -> Iterator[tuple[Member, ExchangeLink]]:
    """The links of each member if exchanges of these names existed; by default of those that the definitions hold."""
    named = frozenset(names) or supposed_names(members)
    return ((each, link) for each in members for link in each.links(named) if isinstance(link, ExchangeLink))


def carriers_of(members: Iterable[Member], queues: Collection[str] = ()) -> tuple[Carrier, ...]:
    """The queue links and shovels, sorted."""
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
            source = CarrierEnd(cluster, vhost, "queue", link.remote_name)
            return Carrier("queue", link.name, source, CarrierEnd(member.cluster, link.vhost, "queue", link.name))
        case ShovelLink(shovel=shovel):
            return Carrier(
                "shovel",
                link.name,
                _end(shovel.source, shovel.source_uris, member, directory),
                _end(shovel.destination, shovel.destination_uris, member, directory),
            )
        case _:
            return None


def _end(place: ShovelPlace, uris: tuple[AmqpUri, ...], member: Member, directory: Directory) -> CarrierEnd:
    cluster, vhost = directory.cluster_of(uris, member), uris[0].vhost("/")
    if isinstance(place, AddressSource | AddressDestination):
        return CarrierEnd(cluster, vhost, *node_at(place.address))
    if isinstance(place, ExchangeSource | ExchangeDestination):
        name = "each message's own exchange" if place.exchange is None else place.exchange or "(default exchange)"
        return CarrierEnd(cluster, vhost, "exchange", name)
    return CarrierEnd(cluster, vhost, "queue", place.queue)


@dataclass(frozen=True, slots=True, order=True)
class UnknownUpstream:
    """An address that no member is known to have. `upstream_of` are the clusters that federate exchanges from there.
    `may_be` are the clusters that it may belong to nevertheless, so that the graph may be another one."""

    address: str
    upstream_of: tuple[str, ...]
    may_be: tuple[str, ...]


class _UpstreamAddress(NamedTuple):
    """The upstream of an exchange link: the downstream's cluster, the upstream's address, and its cluster where that is
    known."""

    downstream: str
    address: str
    upstream: str | None


def unknown_upstreams(members: Sequence[Member], exchanges: Collection[str] = ()) -> tuple[UnknownUpstream, ...]:
    """The upstreams of exchange links that are no member's downstream as far as the files show, by address."""
    directory = Directory(members)
    used = {
        _UpstreamAddress(member.cluster, address_text(link.uris[0]), directory.find(link.uris, member))
        for member, link in _exchange_links(members, exchanges)
    }
    known = _known(members, directory, used)
    are_apart = not any(each.upstream not in (None, each.downstream) for each in used)
    found = []
    for address in sorted({each.address for each in used if each.upstream is None}):
        downstreams = tuple(sorted({each.downstream for each in used if each.address == address}))
        may_be = set(_may_be(members, directory, downstreams, are_apart=are_apart)) - known
        found.append(UnknownUpstream(address, downstreams, tuple(sorted(may_be))))
    return tuple(found)


def _known(members: Sequence[Member], directory: Directory, used: Collection[_UpstreamAddress]) -> set[str]:
    """The clusters of which an option, or a link of another cluster, shows how others reach them."""
    by_option = {member.cluster for member in members if any(map(directory.is_unique, member.known_as))}
    return by_option | {
        each.upstream for each in used if each.upstream is not None and each.upstream != each.downstream
    }


def _may_be(
    members: Sequence[Member], directory: Directory, downstreams: Collection[str], *, are_apart: bool
) -> Iterator[str]:
    """The clusters that an unknown upstream of these downstreams may be.

    A cluster that no other file can recognise may be any of them. Where no file recognises another, hosts probably have
    other names outside than beside the broker. Then it may be any cluster without a link from there: no cluster
    federates from itself, while clusters often share an upstream that has no agent.
    """
    for member in members:
        is_another = {member.cluster} != set(downstreams)
        is_open = directory.is_hidden(member) or (are_apart and member.cluster not in downstreams)
        if member.is_guessed or (is_another and is_open):
            yield member.cluster
