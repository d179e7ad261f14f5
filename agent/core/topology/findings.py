"""Faults of a federation: messages that arrive twice or never, and the max-hops or the links that would be right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from agent.core.topology.graph import Graph, Hop, Node, TooManyCopiesError, bound, copies, hops_in_all_ways, reaches

LARGEST_REMEDIED: Final = 24  # links of a part for which it is tried which of them has to differ
_MOST_LINKS: Final = 200  # of a part that is reduced
_MOST_STEPS: Final = 20_000  # in search of a ring


@dataclass(frozen=True, slots=True)
class Arrival:
    """The number of copies that arrive in one exchange of a message that is published to another once."""

    publisher: Node
    subscriber: Node
    copies: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """Every message arrives once if this link has max-hops `of_it`, and all others have `max_hops`."""

    hop: Hop
    of_it: int
    max_hops: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """Without the links `left_out`, every message arrives once with each of `fitting` as max-hops of all others. `ring`
    is empty unless these others are a ring in one direction."""

    left_out: tuple[Hop, ...]
    fitting: tuple[int, ...]
    ring: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Exchanges that links connect with each other, and with no other.

    `arrivals` has every pair between which messages could pass; None where messages are copied so often that counting
    has no use. `fitting` are the values of max-hops, the same for all links of the part, with which each pair gets
    exactly one copy; none larger than `longest` is tried, since it would change nothing. `fragile` are links without
    which some pair besides its own two ends gets nothing. Where no value fits, `remedies`, else `reduction`,
    else `missing` would be right: links that, added to all others, bring every message once with max-hops 1.
    """

    graph: Graph
    arrivals: tuple[Arrival, ...] | None
    fitting: tuple[int, ...]
    remedies: tuple[Remedy, ...]
    fragile: tuple[Hop, ...]
    longest: int
    reduction: Reduction | None = None
    missing: tuple[Hop, ...] = ()

    @property
    def never(self) -> tuple[Arrival, ...]:
        return tuple(each for each in self.arrivals or () if not each.copies)

    @property
    def repeated(self) -> tuple[Arrival, ...]:
        return tuple(each for each in self.arrivals or () if each.copies > 1)

    @property
    def is_right(self) -> bool:
        return self.arrivals is not None and not self.never and not self.repeated and not self.to_themselves

    @property
    def to_themselves(self) -> tuple[Hop, ...]:
        """Links whose upstream is their own downstream: they only drop messages."""
        return tuple(hop for hop in self.graph.hops if hop.upstream == hop.downstream)

    @property
    def is_one_way_ring(self) -> bool:
        return bool(_ring(self.graph))


@dataclass(frozen=True)
class TopologyFindings:
    """The faults of a federation, by part."""

    parts: tuple[Part, ...]

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        return tuple(each for part in self.parts for each in part.arrivals or ())

    @property
    def is_right(self) -> bool:
        return all(part.is_right for part in self.parts)


def examine(graph: Graph) -> TopologyFindings:
    return TopologyFindings(tuple(_part(part) for part in graph.parts))


def repeated(graph: Graph) -> Iterator[Arrival]:
    """The messages that arrive more than once where users have bindings everywhere, so that each link has one upstream.

    Takes a fraction of the time of `examine`. Raises TooManyCopiesError.
    """
    everywhere = frozenset(hop for hop in graph.hops if hop.max_hops > 0)
    for publisher in graph.nodes:
        for subscriber, number in sorted(copies(graph, publisher, through=everywhere).items()):
            if number > 1 and subscriber != publisher:
                yield Arrival(publisher, subscriber, number)


def _part(graph: Graph) -> Part:
    longest = len({node.site for node in graph.nodes})
    fitting = tuple(_fitting(graph, longest))
    try:
        arrivals: tuple[Arrival, ...] | None = tuple(_arrivals(graph))
        fragile = tuple(_fragile(graph))
    except TooManyCopiesError:
        arrivals, fragile = None, ()
    remedies = () if fitting else tuple(_remedies(graph, longest))
    reduction = None if fitting or remedies else _reduction(graph, longest)
    missing = () if fitting or remedies or reduction else _missing(graph)
    return Part(graph, arrivals, fitting, remedies, fragile, longest, reduction, missing)


def _arrivals(graph: Graph) -> Iterator[Arrival]:
    """The copies for each pair: none as if nobody else subscribed, otherwise with all subscribed, since a copy that
    somebody else's binding asks for arrives as well."""
    everywhere = bound(graph, graph.nodes)
    alone = {subscriber: bound(graph, [subscriber]) for subscriber in graph.nodes}
    for publisher in graph.nodes:
        together = copies(graph, publisher, through=everywhere)
        for subscriber in sorted(graph.reachable(publisher) - {publisher}):
            reached = reaches(graph, publisher, subscriber, through=alone[subscriber])
            yield Arrival(publisher, subscriber, together.get(subscriber, 0) if reached else 0)


def _fitting(graph: Graph, longest: int) -> Iterator[int]:
    yield from (max_hops for max_hops in range(1, longest + 1) if _is_right(graph.with_max_hops(max_hops)))


def _remedies(graph: Graph, longest: int) -> Iterator[Remedy]:
    """The remedies with the lowest max-hops, where no value is right for all links."""
    if len(graph.hops) > LARGEST_REMEDIED:
        return
    for max_hops in range(1, longest + 1):
        everywhere = graph.with_max_hops(max_hops)
        found = [
            Remedy(hop, of_it, max_hops)
            for hop, changed in zip(graph.hops, everywhere.hops, strict=True)
            for of_it in range(1, max_hops)
            if _is_right(everywhere.altered(changed, of_it))
        ]
        yield from found
        if found:
            return


def _reduction(graph: Graph, longest: int) -> Reduction | None:
    """The first set of fewer links that is right with some max-hops."""
    for fewer in reductions(graph):
        fitting = tuple(_fitting(fewer, longest))
        if fitting:
            return Reduction(tuple(hop for hop in graph.hops if hop not in fewer.hops), fitting, _ring(fewer))
    return None


def _missing(graph: Graph) -> tuple[Hop, ...]:
    linked = {(hop.upstream, hop.downstream) for hop in graph.hops}
    added = direct(graph)
    if added is None or not _is_right(added):
        return ()
    return tuple(hop for hop in added.hops if (hop.upstream, hop.downstream) not in linked)


def _ring(graph: Graph) -> tuple[Node, ...]:
    """The exchanges of a graph that is a ring in one direction, in the order of messages; empty if it is none."""
    nodes = graph.nodes
    if len(nodes) <= 2 or any(not len(graph.leaving(node)) == len(graph.entering(node)) == 1 for node in nodes):
        return ()
    found = [nodes[0]]
    while (ahead := graph.leaving(found[-1])[0].downstream) != found[0]:
        found.append(ahead)
    return tuple(found) if len(found) == len(nodes) else ()


def _is_right(graph: Graph) -> bool:
    try:
        return all(each.copies == 1 for each in _arrivals(graph))
    except TooManyCopiesError:
        return False


def _fragile(graph: Graph) -> Iterator[Hop]:
    everywhere = bound(graph, graph.nodes)
    found = {
        hop
        for publisher in graph.nodes
        for subscriber, needed in hops_in_all_ways(graph, publisher, through=everywhere).items()
        for hop in needed
        if (publisher, subscriber) != (hop.upstream, hop.downstream)
    }
    yield from (hop for hop in graph.hops if hop in found)


def ranges(values: Iterable[int], *, unlimited_from: int | None = None) -> str:
    """Whole numbers for people: `2 or 4 to 6`. A run up to `unlimited_from` is `2 or more`."""
    runs = [
        [value for _, value in run]
        for _, run in groupby(enumerate(values), key=lambda numbered: numbered[1] - numbered[0])
    ]
    return " or ".join(_range(run[0], run[-1], unlimited_from) for run in runs)


def _range(first: int, last: int, unlimited_from: int | None) -> str:
    if last == unlimited_from:
        return f"{first} or more"
    return str(first) if first == last else f"{first} to {last}"


def reductions(graph: Graph) -> Iterator[Graph]:
    """Graphs with fewer links by which messages still get everywhere: a ring in one direction through all exchanges,
    then the links that are left without those that aren't needed. Messages may arrive more than once in them."""
    if len(graph.hops) > _MOST_LINKS:
        return
    ring = _ring_through_all(graph)
    if ring is not None and len(ring) < len(graph.hops):
        yield Graph(ring)
    needed = _needed(graph)
    if len(needed.hops) < len(graph.hops):
        yield needed


def direct(graph: Graph) -> Graph | None:
    """The graph with a link from each exchange to all that its messages can reach; None if there are too many."""
    pairs = [(start, end) for start in graph.nodes for end in sorted(graph.reachable(start) - {start})]
    return Graph(tuple(Hop(start, end) for start, end in pairs)) if 0 < len(pairs) <= _MOST_LINKS else None


def _ring_through_all(graph: Graph) -> tuple[Hop, ...] | None:
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
