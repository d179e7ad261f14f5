"""How far messages and bindings travel: the hops in `x-received-from` and `x-bound-from`, and the bindings upstream.

A binding must be propagated exactly as far as a message could travel in the other direction. Many downstream bindings
become one upstream binding per distinct key and arguments.

Why: docs/decisions/0004-headers-as-bytes.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.core import fields
from agent.core.fields import EMPTY, Field, Table
from agent.core.model import Binding
from agent.core.rules import names

RECEIVED_FROM = "x-received-from"
BOUND_FROM = "x-bound-from"
INVALID_HEADERS = "x-invalid-headers"


@dataclass(frozen=True, slots=True)
class Site:
    """A vhost of a cluster; `cluster` is None if the broker has no name."""

    cluster: str | None
    vhost: str


class Verdict(StrEnum):
    """The verdict on forwarding a message, by its `x-received-from`."""

    FORWARD = "forward"
    MAX_HOPS = "max_hops"
    VISITED = "visited"


def seen(entries: tuple[Field, ...], site: Site) -> bool:
    """True if an entry names the site; a site without a cluster name is never recognised."""
    return site.cluster is not None and any(
        entry.tag == "F"
        and fields.get(entry.value, "cluster-name") == fields.text(site.cluster)
        and fields.get(entry.value, "vhost") == fields.text(site.vhost)
        for entry in entries
    )


def received_entry(uri: str, exchange: str, *, redelivered: bool, upstream: Site) -> Field:
    """The entry of a hop; `exchange` is the downstream's name, the rest is the upstream's."""
    return fields.table(
        (
            ("uri", fields.text(uri)),
            ("exchange", fields.text(exchange)),
            ("redelivered", fields.boolean(redelivered)),
            *_of_site(upstream),
        )
    )


def with_entry(headers: Table, name: str, entry: Field) -> Table:
    """Puts a hop's entry first; a header of another type is kept in `x-invalid-headers`."""
    existing = fields.get(headers, name)
    if existing is None:
        return ((name, fields.array(entry)), *headers)
    if existing.tag == "A":
        return _replace(headers, name, fields.array(entry, *existing.value))
    return _keep_invalid(_replace(headers, name, fields.array(entry)), name, existing)


def _keep_invalid(headers: Table, name: str, value: Field) -> Table:
    existing = fields.get(headers, INVALID_HEADERS)
    if existing is None:
        return (*headers, (INVALID_HEADERS, fields.table(((name, fields.array(value)),))))
    invalid: Table = existing.value if existing.tag == "F" else ((INVALID_HEADERS, fields.array(existing)),)
    earlier = fields.get(invalid, name)
    kept = () if earlier is None else earlier.value if earlier.tag == "A" else (earlier,)
    grown = (*fields.without(invalid, name), (name, fields.array(value, *kept)))
    return _replace(headers, INVALID_HEADERS, fields.table(grown))


def _replace(entries: Table, name: str, value: Field) -> Table:
    """The table with this value for the first entry of that name: a table may have more, and brokers use only the first
    too."""
    at = next(index for index, (key, _) in enumerate(entries) if key == name)
    return (*entries[:at], (name, value), *entries[at + 1 :])


def binding_hops(arguments: Table, max_hops: int, upstream: Site) -> int:
    """The hops that a binding has left when it is created upstream; 0 stops it here."""
    bound = fields.get(arguments, BOUND_FROM)
    if bound is None or bound.tag != "A" or not bound.value:
        return max_hops
    if seen(bound.value, upstream):
        return 0
    return max(0, min(_hops_of(bound.value[0]) - 1, max_hops))


def _hops_of(entry: Field) -> int:
    hops: Any = entry.value if entry.tag != "F" else getattr(fields.get(entry.value, "hops"), "value", None)
    return hops if isinstance(hops, int) and not isinstance(hops, bool) and entry.tag == "F" else 0


def bound_entry(downstream: Site, exchange: str, hops: int) -> Field:
    """`exchange` is already in the form `VHOST:EXCHANGE LETTER`."""
    return fields.table((*_of_site(downstream), ("exchange", fields.text(exchange)), ("hops", fields.short(hops))))


def _of_site(site: Site) -> Table:
    cluster = () if site.cluster is None else (("cluster-name", fields.text(site.cluster)),)
    return (*cluster, ("vhost", fields.text(site.vhost)))


MATCH_ALL_BINDINGS: dict[str, tuple[str, Table]] = {
    "topic": ("#", EMPTY),
    "fanout": ("", EMPTY),
    "headers": ("", EMPTY),
}
"""By type of exchange, the binding that matches all its messages."""


@dataclass(frozen=True, slots=True)
class GroupedBinding:
    """One binding as it should exist upstream; arguments are sorted, so equal groups compare equal."""

    routing_key: str
    arguments: Table = EMPTY


@dataclass(frozen=True, slots=True)
class Route:
    """The hops and names that a link's bindings carry."""

    upstream: Site
    downstream: Site
    exchange: str
    max_hops: int

    def group(self, binding: Binding, letter: str) -> GroupedBinding | None:
        """The upstream binding for this one, or None if it has no hop left."""
        carried = self._carried(binding.arguments, letter)
        return None if carried is None else GroupedBinding(binding.routing_key, carried)

    def groups(self, bindings: Iterable[Binding], letter: str) -> frozenset[GroupedBinding]:
        """The bindings that should exist upstream; downstream bindings with equal results share one."""
        # There may be very many, and most have no arguments.
        keys_by_arguments: dict[Table, list[str]] = {}
        for binding in bindings:
            keys_by_arguments.setdefault(binding.arguments, []).append(binding.routing_key)
        return frozenset(
            GroupedBinding(key, carried)
            for arguments, keys in keys_by_arguments.items()
            if (carried := self._carried(arguments, letter)) is not None
            for key in keys
        )

    def _carried(self, arguments: Table, letter: str) -> Table | None:
        left = binding_hops(arguments, self.max_hops, self.upstream)
        if left == 0:
            return None
        shown = names.bound_exchange(self.downstream.vhost, self.exchange, letter)
        entry = bound_entry(self.downstream, shown, left)
        return fields.ordered(with_entry(arguments, BOUND_FROM, entry))


@dataclass(frozen=True, slots=True)
class Difference:
    bind: tuple[GroupedBinding, ...]
    unbind: tuple[GroupedBinding, ...]

    def __bool__(self) -> bool:
        return bool(self.bind or self.unbind)


def difference(*, bound: frozenset[GroupedBinding], wanted: frozenset[GroupedBinding]) -> Difference:
    """The changes to make; binds come first, so that a changed binding leaves no gap."""
    return Difference(bind=_ordered(wanted - bound), unbind=_ordered(bound - wanted))


def _ordered(groups: frozenset[GroupedBinding]) -> tuple[GroupedBinding, ...]:
    return tuple(sorted(groups, key=lambda group: (group.routing_key, repr(group.arguments))))
