"""Several agents' definitions → one graph: which upstream is whose downstream."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from agent.core.addresses.uri import AmqpUri
from agent.core.model import (
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
from agent.core.topology.graph import Carrier, End, Graph, Hop, Node

Address = tuple[str, int]
"""A host, as it is written, and a port."""

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_LITERAL: Final = re.compile(r"(?:\\[^\w\s]|[\w\- /:])+")
_QUEUES_ONLY: Final = (ApplyTo.QUEUES, ApplyTo.CLASSIC_QUEUES, ApplyTo.QUORUM_QUEUES, ApplyTo.STREAMS)


@dataclass(frozen=True)
class Member:
    """One agent's definitions. `cluster` is what its downstream is called here; `uris` lead there. `known_as` are
    further hosts and ports by which other clusters know it."""

    cluster: str
    uris: tuple[AmqpUri, ...]
    definitions: Definitions
    states: Mapping[str, VhostState]
    known_as: tuple[Address, ...] = ()

    @cached_property
    def addresses(self) -> frozenset[Address]:
        return frozenset([*map(_address, self.uris), *self.known_as])

    @property
    def vhosts(self) -> Iterable[str]:
        return {*self.definitions.vhosts, *self.states}

    def links(self, exchanges: Collection[str], queues: Collection[str] = ()) -> Iterator[Link]:
        """Those that there would be if exchanges and queues of these names existed in all its vhosts."""
        states = {vhost: _with(self.states.get(vhost, VhostState()), exchanges, queues) for vhost in self.vhosts}
        yield from resolve(self.definitions, states).links


def _with(state: VhostState, exchanges: Collection[str], queues: Collection[str]) -> VhostState:
    return replace(
        state,
        exchanges={**{name: Exchange(name, "topic") for name in exchanges}, **state.exchanges},
        queues={**{name: Queue(name) for name in queues}, **state.queues},
    )


class Directory:
    """Whose address is whose."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._by_address: dict[Address, set[str]] = {}
        self._by_host: dict[str, set[str]] = {}
        for member in members:
            for host, port in member.addresses:
                self._by_address.setdefault((host, port), set()).add(member.cluster)
                if host not in _LOCAL:
                    self._by_host.setdefault(host, set()).add(member.cluster)

    def cluster_of(self, uris: Iterable[AmqpUri], member: Member) -> str:
        """A cluster that no member stands beside is called by its address. The port may be another than the member's
        own, such as that for TLS."""
        uris = tuple(uris)
        if any(uri.is_downstream_itself or _address(uri) in member.addresses for uri in uris):
            return member.cluster
        for uri in uris:
            host, _ = address = _address(uri)
            for found in (self._by_address.get(address, ()), self._by_host.get(host, ())):
                if len(found) == 1:
                    return next(iter(found))
        host, port = _address(uris[0])
        return f"{host}:{port}"

    def is_hidden(self, member: Member) -> bool:
        """Whether no other cluster can know it: its address is a loopback address, and others have the same."""
        return all(host in _LOCAL and len(self._by_address[host, port]) > 1 for host, port in member.addresses)


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


def supposed_names(members: Iterable[Member], *, of_queues: bool = False) -> frozenset[str]:
    """Names of exchanges, or of queues, that definitions hold, and for policies whose pattern matches none of them
    one that it matches."""
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
    """A name that the pattern matches; None where none is found by what its letters alone say."""
    found = _LITERAL.search(pattern.removeprefix("^"))
    letters = "" if found is None else re.sub(r"\\(.)", r"\1", found[0])
    for name in (f"{letters}example", letters, "example"):
        if name and _matches(pattern, name):
            return name
    return None


def _matches(pattern: str, name: str) -> bool:
    return bool(Pattern(pattern).matches(name))


def _address(uri: AmqpUri) -> Address:
    return uri.connect_host.lower(), uri.connect_port
