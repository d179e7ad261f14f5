"""Which upstreams are no member's downstream as far as the files tell, and whether that leaves the graph open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.core.model import ExchangeLink
from agent.core.topology.directory import Directory
from agent.core.topology.members import Member, supposed_names, written


@dataclass(frozen=True, slots=True, order=True)
class Stranger:
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


def strangers_among(members: Sequence[Member], exchanges: Collection[str] = ()) -> tuple[Stranger, ...]:
    named = frozenset(exchanges) or supposed_names(members)
    directory = Directory(members)
    leads = {
        _Lead(member.cluster, written(link.uris[0]), directory.find(link.uris, member))
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
        found.append(Stranger(address, downstreams, tuple(sorted(may_be))))
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
