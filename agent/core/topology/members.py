"""What one agent's file says: its downstream, and the links that it would have."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from agent.core.addresses.uri import AmqpUri
from agent.core.model import ApplyTo, Definitions, Exchange, Link, Queue, VhostState
from agent.core.rules.patterns import Pattern
from agent.core.rules.resolve import resolve

Address = tuple[str, int]
"""A host, as it is written, and a port."""

_THIS_HOST: Final = "127.0.0.1"
_LITERAL: Final = re.compile(r"(?:\\[^\w\s]|[\w\- /:])+")
_QUEUES_ONLY: Final = (ApplyTo.QUEUES, ApplyTo.CLASSIC_QUEUES, ApplyTo.QUORUM_QUEUES, ApplyTo.STREAMS)


@dataclass(frozen=True)
class Member:
    """One agent's definitions. `cluster` is what its downstream is called here; `uris` lead there. `known_as` are
    further hosts and ports by which other clusters know it. `source` is its file.

    Where it isn't sure of which cluster it is: `is_guessed` if it counts as of the same one as other files, `is_apart`
    if it has an address that others have too and counts as of one of its own.
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
        """Those that there would be if exchanges and queues of these names existed in all its vhosts."""
        states = {vhost: _with(self.states.get(vhost, VhostState()), exchanges, queues) for vhost in self.vhosts}
        yield from resolve(self.definitions, states).links


def _with(state: VhostState, exchanges: Collection[str], queues: Collection[str]) -> VhostState:
    return replace(
        state,
        exchanges={**{name: Exchange(name, "topic") for name in exchanges}, **state.exchanges},
        queues={**{name: Queue(name) for name in queues}, **state.queues},
    )


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


def address_of(uri: AmqpUri) -> Address:
    """`localhost` and `::1` are the same host as `127.0.0.1`, and so is no host."""
    host = uri.connect_host.lower()
    return _THIS_HOST if host in ("", "localhost", "::1") else host, uri.connect_port


def written(uri: AmqpUri) -> str:
    """What a cluster is called that has no other name."""
    return f"{uri.connect_host.lower()}:{uri.connect_port}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # names of this host have become its address
