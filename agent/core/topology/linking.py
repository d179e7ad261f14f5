"""Several agents' definitions → one graph: which upstream is whose downstream, and which upstreams nobody knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
from agent.core.topology.graph import Carrier, End, Graph, Hop, Node
from agent.core.topology.members import Address, Member, address_of, address_text, is_loopback, supposed_names


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


class Directory:
    """The addresses of all members."""

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
        """A cluster that no member stands beside is called by its address."""
        address = address_text(uris[0])
        return self.find(uris, member) or (f"{address} of {member.cluster}" if address in self._clusters else address)

    def find(self, uris: Iterable[AmqpUri], member: Member) -> str | None:
        """The port may be another than the member's own, such as that for TLS. A loopback address leads from one
        member to another only if both use such addresses, as where all run on one host."""
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
        """Whether no other cluster can know it by its addresses: they lead to whatever host they are used on, or
        others have them too."""
        return all(is_loopback(host) or not self.is_only((host, port)) for host, port in member.addresses)

    def is_only(self, address: Address) -> bool:
        """Whether it is of one cluster."""
        return len(self._by_address.get(address, ())) == 1


@dataclass(frozen=True, slots=True, order=True)
class UnknownUpstream:
    """An address that no member is known to have. `upstream_of` are clusters that federate exchanges from there;
    `may_be` are clusters that it may be all the same, so that the graph may be another one."""

    address: str
    upstream_of: tuple[str, ...]
    may_be: tuple[str, ...]


class _Lead(NamedTuple):
    """A link of exchanges: to whom, from which address, and whose that is."""

    downstream: str
    address: str
    upstream: str | None


def unknown_upstreams(members: Sequence[Member], exchanges: Collection[str] = ()) -> tuple[UnknownUpstream, ...]:
    named = frozenset(exchanges) or supposed_names(members)
    directory = Directory(members)
    leads = {
        _Lead(member.cluster, address_text(link.uris[0]), directory.find(link.uris, member))
        for member in members
        for link in member.links(named)
        if isinstance(link, ExchangeLink)
    }
    known = _known(members, directory, leads)
    are_apart = not any(lead.upstream not in (None, lead.downstream) for lead in leads)
    found = []
    for address in sorted({lead.address for lead in leads if lead.upstream is None}):
        downstreams = tuple(sorted({lead.downstream for lead in leads if lead.address == address}))
        may_be = set(_may_be(members, directory, downstreams, are_apart=are_apart)) - known
        found.append(UnknownUpstream(address, downstreams, tuple(sorted(may_be))))
    return tuple(found)


def _known(members: Sequence[Member], directory: Directory, leads: Collection[_Lead]) -> set[str]:
    """Those of which an option, or a link of another one, shows how others reach them."""
    told = {member.cluster for member in members if any(map(directory.is_only, member.known_as))}
    return told | {lead.upstream for lead in leads if lead.upstream is not None and lead.upstream != lead.downstream}


def _may_be(
    members: Sequence[Member], directory: Directory, downstreams: Collection[str], *, are_apart: bool
) -> Iterator[str]:
    """Whose downstream an address may be that leads to these downstreams.

    One that no other file can recognise may be any. Where nobody recognises anybody, names are probably others
    outside than beside the broker. Then it may be any that has no link from there itself: nobody federates from
    itself, while clusters often share an upstream that has no agent.
    """
    for member in members:
        is_another = {member.cluster} != set(downstreams)
        is_open = directory.is_hidden(member) or (are_apart and member.cluster not in downstreams)
        if member.is_guessed or (is_another and is_open):
            yield member.cluster
