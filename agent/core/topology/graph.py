"""What the links of several agents make together: exchanges, and the links that messages pass between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agent.core.rules.hops import Site


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """An exchange of a vhost of a cluster."""

    cluster: str
    vhost: str
    exchange: str

    @property
    def site(self) -> Site:
        return Site(self.cluster, self.vhost)


@dataclass(frozen=True, slots=True)
class Hop:
    """A link: messages pass it from `upstream` to `downstream`, if they came over fewer than `max_hops` links."""

    upstream: Node
    downstream: Node
    max_hops: int = 1


@dataclass(frozen=True)
class Graph:
    hops: tuple[Hop, ...]
    _from: dict[Node, tuple[Hop, ...]] = field(init=False, repr=False, compare=False)
    _into: dict[Node, tuple[Hop, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        out: dict[Node, list[Hop]] = {node: [] for node in self.nodes}
        into: dict[Node, list[Hop]] = {node: [] for node in self.nodes}
        for hop in self.hops:
            out[hop.upstream].append(hop)
            into[hop.downstream].append(hop)
        object.__setattr__(self, "_from", {node: tuple(found) for node, found in out.items()})
        object.__setattr__(self, "_into", {node: tuple(found) for node, found in into.items()})

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(sorted({node for hop in self.hops for node in (hop.upstream, hop.downstream)}))

    def leaving(self, node: Node) -> tuple[Hop, ...]:
        return self._from.get(node, ())

    def entering(self, node: Node) -> tuple[Hop, ...]:
        return self._into.get(node, ())

    def with_max_hops(self, max_hops: int) -> Graph:
        return Graph(tuple(replace(hop, max_hops=max_hops) for hop in self.hops))

    def without(self, hops: Iterable[Hop]) -> Graph:
        gone = set(hops)
        return Graph(tuple(hop for hop in self.hops if hop not in gone))

    def reachable(self, start: Node) -> frozenset[Node]:
        """Where messages could get to if nothing limited how far they go."""
        found, ahead = set[Node](), [start]
        while ahead:
            for hop in self.leaving(ahead.pop()):
                if hop.downstream not in found:
                    found.add(hop.downstream)
                    ahead.append(hop.downstream)
        return frozenset(found)
