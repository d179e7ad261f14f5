"""Several agents' definitions → one graph: which upstream is whose downstream."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from agent.core.addresses.uri import AmqpUri
from agent.core.model import Definitions, Exchange, ExchangeLink, VhostState
from agent.core.rules.patterns import Pattern
from agent.core.rules.resolve import resolve
from agent.core.topology.graph import Graph, Hop, Node

Address = tuple[str, int]
"""A host, as it is written, and a port."""

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_LITERAL: Final = re.compile(r"(?:\\[^\w\s]|[\w\- /:])+")


@dataclass(frozen=True)
class Member:
    """One agent's definitions. `cluster` is what its downstream is called here; `uris` lead there."""

    cluster: str
    uris: tuple[AmqpUri, ...]
    definitions: Definitions
    states: Mapping[str, VhostState]

    @cached_property
    def addresses(self) -> frozenset[Address]:
        """Those that other clusters may know it by."""
        return frozenset(_address(uri) for uri in self.uris if uri.connect_host not in _LOCAL)

    @property
    def vhosts(self) -> Iterable[str]:
        return {*self.definitions.vhosts, *self.states}

    def links(self, exchanges: Collection[str]) -> Iterator[ExchangeLink]:
        """Those that there would be if exchanges of these names existed in all its vhosts."""
        states = {vhost: self._with(self.states.get(vhost, VhostState()), exchanges) for vhost in self.vhosts}
        for link in resolve(self.definitions, states).links:
            if isinstance(link, ExchangeLink):
                yield link

    @staticmethod
    def _with(state: VhostState, exchanges: Collection[str]) -> VhostState:
        supposed = {name: Exchange(name, "topic") for name in exchanges}
        return replace(state, exchanges={**supposed, **state.exchanges})


def graph_of(members: Iterable[Member], exchanges: Collection[str] = ()) -> Graph:
    """A cluster that no member stands beside is called by its address."""
    members = tuple(members)
    named = frozenset(exchanges) or supposed_names(members)
    owners = {address: member for member in members for address in member.addresses}
    hops = {
        Hop(
            Node(_cluster_of(link, member, owners), _vhost_of(link), link.remote_name),
            Node(member.cluster, link.vhost, link.name),
            link.settings.max_hops,
        )
        for member in members
        for link in member.links(named)
    }
    return Graph(tuple(sorted(hops, key=lambda hop: (hop.upstream, hop.downstream, hop.max_hops))))


def supposed_names(members: Iterable[Member]) -> frozenset[str]:
    """Names of exchanges that definitions hold, and for policies whose pattern matches none of them one that it
    matches."""
    members = tuple(members)
    known = frozenset(name for member in members for name in _known(member))
    patterns = {
        policy.pattern
        for member in members
        for found in member.definitions.vhosts.values()
        for policy in found.policies.values()
    }
    examples = (example(pattern) for pattern in sorted(patterns) if not any(_matches(pattern, name) for name in known))
    return known | {each for each in examples if each is not None}


def _known(member: Member) -> Iterator[str]:
    for found in member.definitions.vhosts.values():
        yield from found.exchanges
        for upstream in found.upstreams.values():
            if upstream.settings.exchange:
                yield upstream.settings.exchange
    for state in member.states.values():
        yield from (name for name in state.exchanges if name and not name.startswith("amq."))


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


def _cluster_of(link: ExchangeLink, member: Member, owners: Mapping[Address, Member]) -> str:
    for uri in link.uris:
        if uri.is_downstream_itself or _address(uri) in {_address(own) for own in member.uris}:
            return member.cluster
        if _address(uri) in owners:
            return owners[_address(uri)].cluster
    host, port = _address(link.uris[0])
    return f"{host}:{port}"


def _vhost_of(link: ExchangeLink) -> str:
    return link.uris[0].vhost(link.vhost)
