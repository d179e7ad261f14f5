"""Grouped bindings: many downstream bindings become one upstream binding per distinct key and arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.core import fields
from agent.core.fields import EMPTY, Table
from agent.core.model import Binding
from agent.core.rules import hops, names
from agent.core.rules.hops import Site

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
        left = hops.binding_hops(arguments, self.max_hops, self.upstream)
        if left == 0:
            return None
        shown = names.bound_exchange(self.downstream.vhost, self.exchange, letter)
        entry = hops.bound_entry(self.downstream, shown, left)
        return fields.ordered(hops.with_entry(arguments, hops.BOUND_FROM, entry))


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
