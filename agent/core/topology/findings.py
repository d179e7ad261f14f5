"""What is wrong with a federation: messages that arrive twice or never, and the max-hops that would be right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from agent.core.topology.flow import TooManyCopiesError, bound, copies
from agent.core.topology.graph import Graph, Hop, Node

LARGEST_TRIED: Final = 32  # max-hops


@dataclass(frozen=True, slots=True)
class Arrival:
    """Of what is published to the one exchange once, how many copies get to the other."""

    publisher: Node
    subscriber: Node
    copies: int


@dataclass(frozen=True, slots=True)
class Findings:
    """`arrivals` has every pair between which messages could pass. `fitting` are the values of max-hops, for all
    links, with which each of them gets exactly one copy. `fragile` are links without which some pair gets none."""

    arrivals: tuple[Arrival, ...]
    fitting: tuple[int, ...]
    fragile: tuple[Hop, ...]

    @property
    def never(self) -> tuple[Arrival, ...]:
        return tuple(each for each in self.arrivals if not each.copies)

    @property
    def repeated(self) -> tuple[Arrival, ...]:
        return tuple(each for each in self.arrivals if each.copies > 1)


def examine(graph: Graph) -> Findings:
    """Raises TooManyCopiesError where a message is copied beyond counting."""
    arrivals = tuple(_arrivals(graph))
    return Findings(arrivals, tuple(_fitting(graph)), tuple(_fragile(graph, arrivals)))


def _arrivals(graph: Graph) -> Iterator[Arrival]:
    """Each pair on its own for `never`, as if nobody else subscribed; all together for copies: a copy that somebody
    else's binding asks for arrives as well."""
    everywhere = bound(graph, graph.nodes)
    alone = {subscriber: bound(graph, [subscriber]) for subscriber in graph.nodes}
    for publisher in graph.nodes:
        together = copies(graph, publisher, through=everywhere)
        for subscriber in sorted(graph.reachable(publisher) - {publisher}):
            reached = copies(graph, publisher, through=alone[subscriber]).get(subscriber, 0)
            yield Arrival(publisher, subscriber, together.get(subscriber, 0) if reached else 0)


def _fitting(graph: Graph) -> Iterator[int]:
    for max_hops in range(1, min(LARGEST_TRIED, len(graph.nodes)) + 1):
        try:
            if all(each.copies == 1 for each in _arrivals(graph.with_max_hops(max_hops))):
                yield max_hops
        except TooManyCopiesError:
            return  # with more hops there are only more copies


def _fragile(graph: Graph, arrivals: tuple[Arrival, ...]) -> Iterator[Hop]:
    reached = {(each.publisher, each.subscriber) for each in arrivals if each.copies}
    for hop in graph.hops:
        left = graph.without([hop])
        still = {(each.publisher, each.subscriber) for each in _arrivals(left) if each.copies}
        if reached - still - {(hop.upstream, hop.downstream)}:
            yield hop


def ranges(values: tuple[int, ...]) -> str:
    """`2`, or `2 to 4`, with `or` between: as people read it."""
    runs = [
        [value for _, value in run]
        for _, run in groupby(enumerate(values), key=lambda numbered: numbered[1] - numbered[0])
    ]
    return " or ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
