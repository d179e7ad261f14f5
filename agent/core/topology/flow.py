"""How often a message arrives where, by the rules of `core.rules.hops`; bounded, since copies multiply."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

from agent.core.rules.hops import Site
from agent.core.topology.graph import Graph, Hop, Node

MOST_STEPS: Final = 20_000  # of one message, or of the bindings of one exchange


class TooManyCopiesError(Exception):
    """A message would be copied so often that counting has no use."""


def bound(graph: Graph, subscribers: Iterable[Node]) -> frozenset[Hop]:
    """The links that have a binding upstream, where these exchanges have one of a user."""
    found: set[Hop] = set()
    for subscriber in subscribers:
        found |= _bound_for(graph, subscriber)
    return frozenset(found)


def _bound_for(graph: Graph, subscriber: Node) -> set[Hop]:
    """A binding carries the sites that it came through and how many hops it has left; the best of them counts."""
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
    """How often a message that is published once arrives in other exchanges, by links that are bound."""
    found: Counter[Node] = Counter()
    ahead: list[tuple[Node, tuple[Site, ...]]] = [(publisher, ())]
    for _ in range(MOST_STEPS):
        if not ahead:
            return found
        node, received_from = ahead.pop()
        for hop in graph.leaving(node):
            if hop in through and _passes(hop, received_from):
                found[hop.downstream] += 1
                ahead.append((hop.downstream, (*received_from, node.site)))
    raise TooManyCopiesError


def reaches(graph: Graph, publisher: Node, subscriber: Node, *, through: frozenset[Hop]) -> bool:
    """Whether a copy arrives at all: the shortest ways are looked at first."""
    ahead: deque[tuple[Node, tuple[Site, ...]]] = deque([(publisher, ())])
    for _ in range(MOST_STEPS):
        if not ahead:
            return False
        node, received_from = ahead.popleft()
        for hop in graph.leaving(node):
            if hop in through and _passes(hop, received_from):
                if hop.downstream == subscriber:
                    return True
                ahead.append((hop.downstream, (*received_from, node.site)))
    raise TooManyCopiesError


def hops_in_all_ways(graph: Graph, publisher: Node, *, through: frozenset[Hop]) -> Mapping[Node, frozenset[Hop]]:
    """For each exchange that gets copies, the links that every one of them passes."""
    found: dict[Node, frozenset[Hop]] = {}
    ahead: list[tuple[Node, tuple[Site, ...], frozenset[Hop]]] = [(publisher, (), frozenset())]
    for _ in range(MOST_STEPS):
        if not ahead:
            return {node: hops for node, hops in found.items() if node != publisher}
        node, received_from, way = ahead.pop()
        for hop in graph.leaving(node):
            if hop in through and _passes(hop, received_from):
                longer = way | {hop}
                found[hop.downstream] = found.get(hop.downstream, longer) & longer
                ahead.append((hop.downstream, (*received_from, node.site), longer))
    raise TooManyCopiesError


def _passes(hop: Hop, received_from: tuple[Site, ...]) -> bool:
    return len(received_from) < hop.max_hops and hop.downstream.site not in received_from
