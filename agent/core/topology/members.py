"""The members of a federation, one for each agent's file: downstream, the links that it would have, cluster name."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from agent.core.addresses.uri import AmqpUri
from agent.core.model import ApplyTo, Definitions, Exchange, ExchangeLink, Link, Queue, ShovelLink, VhostState
from agent.core.rules.patterns import Pattern
from agent.core.rules.resolve import resolve

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
