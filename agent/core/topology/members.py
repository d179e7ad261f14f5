"""The members of a federation, one for each agent's file: downstream, the links that it would have, cluster name.

Their definitions become one graph, besides the upstreams that no member is known to be.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from agent.core.addresses.rabbitmq_address import node_at
from agent.core.addresses.uri import AmqpUri
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ApplyTo,
    Definitions,
    Exchange,
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    Link,
    Queue,
    QueueLink,
    ShovelLink,
    ShovelPlace,
    VhostState,
)
from agent.core.rules.patterns import Pattern
from agent.core.rules.resolve import resolve
from agent.core.topology.graph import Carrier, CarrierEnd, Graph, Hop, Node

Address = tuple[str, int]
"""A host, as it is written, and a port."""

_THIS_HOST: Final = "127.0.0.1"
_LITERAL: Final = re.compile(r"(?:\\[^\w\s]|[\w\- /:])+")
_QUEUES_ONLY: Final = (ApplyTo.QUEUES, ApplyTo.CLASSIC_QUEUES, ApplyTo.QUORUM_QUEUES, ApplyTo.STREAMS)


@dataclass(frozen=True)
class Member:
    """One agent's definitions. `cluster` is the name of its downstream; `uris` lead there. `known_as` are further hosts
    and ports by which other clusters know it. `source` is its file.

    Where its cluster isn't certain: `is_guessed` if it counts as the same one as that of other files, `is_apart` if it
    has an address that others have too and counts as a cluster of its own.
    """

    cluster: str
    uris: tuple[AmqpUri, ...]
    definitions: Definitions
    states: Mapping[str, VhostState]
    known_as: tuple[Address, ...] = ()
    source: str = ""
    is_guessed: bool = False
    is_apart: bool = False

    @cached_property
    def addresses(self) -> frozenset[Address]:
        return frozenset([*map(address_of, self.uris), *self.known_as])

    @property
    def vhosts(self) -> Iterable[str]:
        return {*self.definitions.vhosts, *self.states}

    def links(self, exchanges: Collection[str], queues: Collection[str] = ()) -> Iterator[Link]:
        """The links that there would be if exchanges and queues of these names existed in all its vhosts."""
        states = {vhost: _with(self.states.get(vhost, VhostState()), exchanges, queues) for vhost in self.vhosts}
        yield from resolve(self.definitions, states).links


def _with(state: VhostState, exchanges: Collection[str], queues: Collection[str]) -> VhostState:
    return replace(
        state,
        exchanges={**{name: Exchange(name, "topic") for name in exchanges}, **state.exchanges},
        queues={**{name: Queue(name) for name in queues}, **state.queues},
    )


def supposed_names(members: Iterable[Member], *, of_queues: bool = False) -> frozenset[str]:
    """The names of exchanges, or of queues, that definitions hold, and a name for each policy whose pattern matches
    none of them."""
    members = tuple(members)
    known = frozenset(name for member in members for name in (_queues(member) if of_queues else _exchanges(member)))
    patterns = {
        policy.pattern
        for member in members
        for found in member.definitions.vhosts.values()
        for policy in found.policies.values()
        if (policy.apply_to in _QUEUES_ONLY) == of_queues
    }
    examples = (example(pattern) for pattern in sorted(patterns) if not any(_matches(pattern, name) for name in known))
    return known | {each for each in examples if each is not None}


def _exchanges(member: Member) -> Iterator[str]:
    for found in member.definitions.vhosts.values():
        yield from found.exchanges
        for upstream in found.upstreams.values():
            if upstream.settings.exchange:
                yield upstream.settings.exchange
    for state in member.states.values():
        yield from (name for name in state.exchanges if name and not name.startswith("amq."))


def _queues(member: Member) -> Iterator[str]:
    for found in member.definitions.vhosts.values():
        yield from (upstream.settings.queue for upstream in found.upstreams.values() if upstream.settings.queue)
    for state in member.states.values():
        yield from state.queues


def example(pattern: str) -> str | None:
    """A name that the pattern matches, guessed from its letters; None if no guess matches."""
    found = _LITERAL.search(pattern.removeprefix("^"))
    letters = "" if found is None else re.sub(r"\\(.)", r"\1", found[0])
    for name in (f"{letters}example", letters, "example"):
        if name and _matches(pattern, name):
            return name
    return None


def _matches(pattern: str, name: str) -> bool:
    return bool(Pattern(pattern).matches(name))


def address_of(uri: AmqpUri) -> Address:
    """The address that a URI leads to: `localhost` and `::1` are the same host as `127.0.0.1`, and so is no host."""
    host = uri.connect_host.lower()
    return _THIS_HOST if host in ("", "localhost", "::1") else host, uri.connect_port


def address_text(uri: AmqpUri) -> str:
    """The name of a cluster that has no other."""
    return f"{uri.connect_host.lower()}:{uri.connect_port}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # names of this host have become its address


def name_clusters(members: Sequence[Member]) -> tuple[Member, ...]:
    """Gives a name to the cluster of each member that has no group, which would be the name. Files of one group whose
    links differ are no replicas: one of them may be a copy in which the group was left as it was.

    Where no other file has the same downstream, its address is the name. Where others have, they are replicas if the
    address isn't a loopback address and their links are the same. Otherwise nothing shows whether they are one cluster:
    each file is a cluster of its own, called by the file, and that its address is not its alone shows that it can't be
    recognised.
    """
    named = tuple(member for member in members if member.cluster)
    groups = {cluster: [each for each in named if each.cluster == cluster] for cluster in {m.cluster for m in named}}
    doubtful = {cluster for cluster, group in groups.items() if not _have_same_links(group)}
    found = {member.source: replace(member, is_guessed=member.cluster in doubtful) for member in named}
    for alike in _sharing([member for member in members if not member.cluster]):
        first = alike[0].uris[0]
        taken = any(each.addresses & member.addresses for each in alike for member in named)
        if not taken and (len(alike) == 1 or _are_replicas(alike)):
            found |= {
                each.source: replace(each, cluster=address_text(first), is_guessed=len(alike) > 1) for each in alike
            }
        else:
            found |= {each.source: replace(each, cluster=_by_file(each, members), is_apart=True) for each in alike}
    return tuple(found[member.source] for member in members)


def names_of(member: Member) -> Iterator[str]:
    """The names by which people may call the cluster of this file."""
    yield from (member.cluster, member.source, _file_name(member), _stem(member))


def _by_file(member: Member, members: Sequence[Member]) -> str:
    """The name of its file, without folder and extension where that is unique."""
    stems = Counter(map(_stem, members))
    stem = _stem(member)
    is_group = any(each.cluster == stem and each.source != member.source for each in members)
    return member.source if stems[stem] > 1 or is_group else stem


def _file_name(member: Member) -> str:
    return member.source.rpartition("/")[2]


def _stem(member: Member) -> str:
    file_name = _file_name(member)
    return file_name.rpartition(".")[0] or file_name


def _sharing(members: Sequence[Member]) -> list[list[Member]]:
    """The members in groups that have an address in common."""
    found: list[list[Member]] = []
    for member in members:
        beside = [each for each in found if any(member.addresses & other.addresses for other in each)]
        found = [each for each in found if each not in beside]
        found.append([*(other for each in beside for other in each), member])
    return found


def _are_replicas(members: Sequence[Member]) -> bool:
    if any(is_loopback(host) for member in members for host, _ in member.addresses):
        return False
    return _have_same_links(members)


def _have_same_links(members: Sequence[Member]) -> bool:
    exchanges, queues = supposed_names(members), supposed_names(members, of_queues=True)
    return len({_links(member, exchanges, queues) for member in members}) == 1


def _links(member: Member, exchanges: Collection[str], queues: Collection[str]) -> frozenset[object]:
    """The facts by which the links of two files are compared; passwords may differ."""
    return frozenset(
        (
            link.id,
            link.vhost,
            link.remote_name,
            frozenset(map(address_of, link.uris)),
            frozenset(map(address_of, link.shovel.destination_uris)) if isinstance(link, ShovelLink) else None,
            link.settings.max_hops if isinstance(link, ExchangeLink) else None,
        )
        for link in member.links(exchanges, queues)
    )


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
