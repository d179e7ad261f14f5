"""Other links that bring messages everywhere too, for exchanges that are linked by ways of different length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.core.topology.graph import Graph, Hop, Node

_MOST_LINKS: Final = 200
_MOST_STEPS: Final = 20_000


def reductions(graph: Graph) -> Iterator[Graph]:
    """A ring in one direction through all exchanges, then what is left without each link that isn't needed to get
    everywhere. Whether messages arrive once there is for the caller to find out."""
    if len(graph.hops) > _MOST_LINKS:
        return
    ring = _ring(graph)
    if ring is not None and len(ring) < len(graph.hops):
        yield Graph(ring)
    needed = _needed(graph)
    if len(needed.hops) < len(graph.hops):
        yield needed


def direct(graph: Graph) -> Graph | None:
    """A link from each exchange to all that its messages can get to; None if there are too many."""
    pairs = [(start, end) for start in graph.nodes for end in sorted(graph.reachable(start) - {start})]
    return Graph(tuple(Hop(start, end) for start, end in pairs)) if 0 < len(pairs) <= _MOST_LINKS else None


def _ring(graph: Graph) -> tuple[Hop, ...] | None:
    start, count = graph.nodes[0], len(graph.nodes)
    ahead: list[tuple[Hop, ...]] = [(hop,) for hop in reversed(graph.leaving(start))]
    for _ in range(_MOST_STEPS):
        if not ahead:
            return None
        way = ahead.pop()
        at = way[-1].downstream
        if at == start:
            if len(way) == count:
                return way
            continue
        passed = {hop.upstream for hop in way}
        if at not in passed:
            ahead += [(*way, hop) for hop in reversed(graph.leaving(at))]
    return None


def _needed(graph: Graph) -> Graph:
    everywhere = _reached(graph)
    for hop in graph.hops:
        without = Graph(tuple(each for each in graph.hops if each != hop))
        if _reached(without) == everywhere:
            graph = without
    return graph


def _reached(graph: Graph) -> dict[Node, frozenset[Node]]:
    return {node: graph.reachable(node) - {node} for node in graph.nodes}
