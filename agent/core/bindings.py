"""Grouped bindings: many downstream bindings become one upstream binding per distinct key and arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.core import fields, hops, names
from agent.core.fields import EMPTY, Table
from agent.core.hops import Site
from agent.core.model import Binding

TAKES_EVERYTHING: dict[str, tuple[str, Table]] = {
    "topic": ("#", EMPTY),
    "fanout": ("", EMPTY),
    "headers": ("", EMPTY),
}
"""The binding that asks an exchange of this type for all of its messages."""


@dataclass(frozen=True, slots=True)
class Group:
    """One binding as it should stand upstream; arguments are sorted, so equal groups are equal."""

    routing_key: str
    arguments: Table = EMPTY


@dataclass(frozen=True, slots=True)
class Route:
    """What a link's bindings need to know of the way they travel."""

    upstream: Site
    downstream: Site
    exchange: str
    max_hops: int

    def group(self, binding: Binding, letter: str) -> Group | None:
        """The upstream binding that stands for this one, or nothing where it has no hop left."""
        left = hops.binding_hops(binding.arguments, self.max_hops, self.upstream)
        if left == 0:
            return None
        shown = names.bound_exchange(self.downstream.vhost, self.exchange, letter)
        entry = hops.bound_entry(self.downstream, shown, left)
        carried = hops.with_entry(binding.arguments, hops.BOUND_FROM, entry)
        return Group(binding.routing_key, fields.ordered(carried))

    def groups(self, bindings: Iterable[Binding], letter: str) -> frozenset[Group]:
        """Everything that should be bound upstream; members with equal results share one group."""
        return frozenset(group for binding in bindings if (group := self.group(binding, letter)) is not None)


@dataclass(frozen=True, slots=True)
class Difference:
    bind: tuple[Group, ...]
    unbind: tuple[Group, ...]

    def __bool__(self) -> bool:
        return bool(self.bind or self.unbind)


def difference(*, bound: frozenset[Group], wanted: frozenset[Group]) -> Difference:
    """What to do; binds come first, so that a changed binding leaves no gap."""
    return Difference(bind=_ordered(wanted - bound), unbind=_ordered(bound - wanted))


def _ordered(groups: frozenset[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: (group.routing_key, repr(group.arguments))))
