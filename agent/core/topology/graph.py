"""What the links of several agents make together: exchanges, and the links that messages pass between them."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True, order=True)
class End:
    """Where a queue link or a shovel takes messages from, or brings them to."""

    cluster: str
    vhost: str
    kind: str  # exchange | queue
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Carrier:
    """A queue link or a shovel: it moves messages and copies none, so no hop rule holds for it."""

    kind: str  # queue | shovel
    name: str
    source: End
    destination: End


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

    def altered(self, changed: Hop, max_hops: int) -> Graph:
        return Graph(tuple(replace(hop, max_hops=max_hops) if hop == changed else hop for hop in self.hops))

    @property
    def parts(self) -> tuple[Graph, ...]:
        """Those that no link connects with each other."""
        left, parts = list(self.nodes), []
        while left:
            inside, ahead = {left[0]}, [left[0]]
            while ahead:
                node = ahead.pop()
                beside = {hop.upstream for hop in self.entering(node)} | {hop.downstream for hop in self.leaving(node)}
                ahead += beside - inside
                inside |= beside
            parts.append(Graph(tuple(hop for hop in self.hops if hop.upstream in inside)))
            left = [node for node in left if node not in inside]
        return tuple(parts)

    def reachable(self, start: Node) -> frozenset[Node]:
        """Where messages could get to if nothing limited how far they go."""
        found, ahead = set[Node](), [start]
        while ahead:
            for hop in self.leaving(ahead.pop()):
                if hop.downstream not in found:
                    found.add(hop.downstream)
                    ahead.append(hop.downstream)
        return frozenset(found)
