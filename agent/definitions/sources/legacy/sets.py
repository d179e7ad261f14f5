"""Upstream sets of 2.x; the current form is almost the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.definitions.document.findings import quoted
from agent.definitions.sources.legacy.emit import Block, Rows
from agent.definitions.sources.legacy.properties import Problems, Rule, name, properties, proplists, whole, written_name
from agent.definitions.sources.legacy.terms import Term
from agent.errors import Place

EVERY_UPSTREAM = "all"
MAX_HOPS = 2**15 - 1
_RULES = {
    "connection": Rule("upstream", written_name),
    "exchange": Rule("exchange", written_name),
    "max_hops": Rule("max-hops", whole(1, MAX_HOPS)),
}


@dataclass(frozen=True, slots=True)
class Member:
    connection: str
    at: Place
    block: Block


@dataclass(frozen=True, slots=True)
class UpstreamSet:
    at: Place
    members: tuple[Member, ...] = ()

    @property
    def rows(self) -> Rows:
        return Rows(tuple(member.block for member in self.members))

    def is_every(self, connections: Iterable[str]) -> bool:
        """Whether it is equivalent to the predefined set `all`."""
        names = [member.connection for member in self.members]
        return sorted(names) == sorted(connections) and all(len(member.block.entries) == 1 for member in self.members)


def read_set(set_name: str, at: Place, term: Term, *, problems: Problems) -> UpstreamSet:
    what = f"upstream set {quoted(set_name)}"
    listed = proplists(term)
    if listed is None:
        problems.add(term.at, f'{what}: write a list of upstreams, as in [[{{connection, "…"}}], …]')
        return UpstreamSet(at)
    members = (_read_member(each, what, problems) for each in listed)
    return UpstreamSet(at, tuple(member for member in members if member is not None))


def _read_member(term: Term, what: str, problems: Problems) -> Member | None:
    given = properties(term, what, problems)
    entries = tuple(given.entries(_RULES, problems))
    if "connection" not in given.found:
        problems.add(given.at, f'{what}: an upstream names no connection; add {{connection, "…"}}')
        return None
    connection = given.found["connection"].value
    if not any(entry.key == "upstream" for entry in entries):
        return None
    notes = (*given.notes, *given.without_counterpart(_RULES))
    return Member(name(connection), connection.at, Block(entries, notes))
