"""The graph of several agents' links: exchanges, the links that messages pass between them, and how often a message
arrives where, by the rules of `core.rules.hops`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.core.rules.hops import Site

MOST_STEPS: Final = 20_000  # of one message, or of the bindings of one exchange; copies multiply


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
class CarrierEnd:
    """The place that a queue link or a shovel takes messages from, or brings them to."""

    cluster: str
    vhost: str
    kind: str  # exchange | queue | address, of AMQP 1.0
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Carrier:
    """A queue link or a shovel: it moves messages and copies none, so max-hops doesn't apply to it."""

    kind: str  # queue | shovel
    name: str
    source: CarrierEnd
    destination: CarrierEnd


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
        """The parts of the graph that no link connects with each other."""
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
        """The exchanges that messages could reach if nothing limited their hops."""
        found, ahead = set[Node](), [start]
        while ahead:
            for hop in self.leaving(ahead.pop()):
                if hop.downstream not in found:
                    found.add(hop.downstream)
                    ahead.append(hop.downstream)
        return frozenset(found)


class TooManyCopiesError(Exception):
    """A message would be copied so often that counting has no use."""


def bound(graph: Graph, subscribers: Iterable[Node]) -> frozenset[Hop]:
    """The links that have a binding upstream if users have bound something to these exchanges. Raises
    TooManyCopiesError, as all below do."""
    return frozenset(hop for subscriber in subscribers for hop in _bound_for(graph, subscriber))


def _bound_for(graph: Graph, subscriber: Node) -> set[Hop]:
    """A binding carries the sites that it came through and how many hops it has left; the best one counts."""
    found: set[Hop] = set()
    ahead: list[tuple[Node, frozenset[Site], int | None]] = [(subscriber, frozenset(), None)]
    for _ in range(MOST_STEPS):
        if not ahead:
            return found
        node, passed, left = ahead.pop()
        for hop in graph.entering(node):
            hops = hop.max_hops if left is None else min(left - 1, hop.max_hops)
            if hops > 0 and hop.upstream.site not in passed:
                found.add(hop)
                ahead.append((hop.upstream, passed | {hop.downstream.site}, hops))
    raise TooManyCopiesError


def copies(graph: Graph, publisher: Node, *, through: frozenset[Hop]) -> Mapping[Node, int]:
    """The number of copies of a message, published once, that arrive in other exchanges, by links that are bound."""
    return Counter(way[-1].downstream for way in _ways(graph, publisher, through))


def reaches(graph: Graph, publisher: Node, subscriber: Node, *, through: frozenset[Hop]) -> bool:
    """True if a copy arrives at all."""
    return any(way[-1].downstream == subscriber for way in _ways(graph, publisher, through))


def hops_in_all_ways(graph: Graph, publisher: Node, *, through: frozenset[Hop]) -> Mapping[Node, frozenset[Hop]]:
    """For each exchange that gets copies, the links that every one of them passes."""
    found: dict[Node, frozenset[Hop]] = {}
    for way in _ways(graph, publisher, through):
        found[way[-1].downstream] = found.get(way[-1].downstream, frozenset(way)).intersection(way)
    return {node: hops for node, hops in found.items() if node != publisher}


def _ways(graph: Graph, publisher: Node, through: frozenset[Hop]) -> Iterator[tuple[Hop, ...]]:
    """The links that each copy of a message passes, for all copies in all exchanges; shorter ways first."""
    ahead: deque[tuple[Node, tuple[Site, ...], tuple[Hop, ...]]] = deque([(publisher, (), ())])
    for _ in range(MOST_STEPS):
        if not ahead:
            return
        node, received_from, way = ahead.popleft()
        for hop in graph.leaving(node):
            if hop in through and len(received_from) < hop.max_hops and hop.downstream.site not in received_from:
                yield (*way, hop)
                ahead.append((hop.downstream, (*received_from, node.site), (*way, hop)))
    raise TooManyCopiesError
