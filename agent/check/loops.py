"""Links that bring messages back to where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.check.findings import Finding, Level, Topic
from agent.core.topology.findings import repeated
from agent.core.topology.flow import TooManyCopiesError
from agent.core.topology.graph import Graph, Hop, Node

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A queue or an exchange on a broker."""

    cluster: str
    vhost: str
    kind: str  # exchange | queue
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} in vhost {self.vhost!r} of {self.cluster}"


@dataclass(frozen=True, slots=True)
class Way:
    """From where to where a link brings messages; `max_hops` is None where no hop rule holds."""

    label: str
    source: Spot
    destination: Spot
    max_hops: int | None = None


def judge_loops(ways: Iterable[Way], goes_on: Callable[[], bool] = lambda: True) -> Iterator[Finding]:
    """`goes_on` is asked before each set of connected exchanges, which takes a second at most."""
    ways = tuple(ways)
    hops = [way for way in ways if way.max_hops is not None]
    yield from _repeats(hops, goes_on)
    yield from (_itself(way) for way in hops if way.source == way.destination)
    for circle in _circles([way for way in ways if way.max_hops is None]):
        yield Finding(
            Level.ERROR,
            Topic.LOOP,
            str(circle[0].source),
            "messages move in a circle without end: "
            + " → ".join([*(str(way.source) for way in circle[:MOST_SHOWN]), str(circle[0].source)]),
            "remove one of these shovels or queue links",
            tuple(way.label for way in circle[:MOST_SHOWN]),
        )


def _itself(way: Way) -> Finding:
    return Finding(
        Level.ERROR,
        Topic.LOOP,
        str(way.destination),
        "the upstream is the downstream itself, in the same vhost and with the same exchange: the link would only drop "
        "messages",
        "correct the upstream's URI; where it is another cluster, give it another name (rabbitmqctl set_cluster_name)",
        (way.label,),
    )


def _repeats(ways: Iterable[Way], goes_on: Callable[[], bool]) -> Iterator[Finding]:
    labels: dict[tuple[Node, Node], str] = {}
    hops = []
    for way in ways:
        hop = Hop(_node(way.source), _node(way.destination), way.max_hops or 1)
        labels[hop.upstream, hop.downstream] = way.label
        if hop.upstream != hop.downstream:
            hops.append(hop)
    meshed = (part for part in Graph(tuple(hops)).parts if len(part.hops) >= len(part.nodes))  # in a tree none repeats
    for part in meshed:
        if not goes_on():
            yield _UNFINISHED
            return
        involved = tuple(sorted({labels[hop.upstream, hop.downstream] for hop in part.hops})[:MOST_SHOWN])
        try:
            found = [each for each, _ in zip(repeated(part), range(MOST_SHOWN), strict=False)]
        except TooManyCopiesError:
            node = min(part.nodes)
            yield _warning(
                node,
                f"so many copies arrive here and at {len(part.nodes) - 1:,} more that they can't be counted",
                involved,
            )
            continue
        for each in found:
            message = f"messages published at {_shown(each.publisher)} arrive {each.copies} times"
            yield _warning(each.subscriber, message, involved)


def _warning(at: Node, message: str, links: tuple[str, ...]) -> Finding:
    fix = "lower max-hops: `federation-agent topology` shows which values are right"
    return Finding(Level.WARNING, Topic.LOOP, _shown(at), message, fix, links)


_UNFINISHED: Final = Finding(
    Level.NOTE,
    Topic.LOOP,
    "links",
    "not all were examined for messages that arrive twice: it takes too long",
    "`federation-agent topology` examines them without a limit of time",
)


def _circles(ways: Iterable[Way]) -> Iterator[list[Way]]:
    """One for each set of spots that lead to each other."""
    leaving: dict[Spot, list[Way]] = {}
    for way in ways:
        leaving.setdefault(way.source, []).append(way)
    done: set[Spot] = set()
    for start in sorted(leaving):
        if start not in done and (found := _way_back(start, leaving)):
            done |= {way.source for way in found}
            yield found


def _way_back(start: Spot, leaving: Mapping[Spot, list[Way]]) -> list[Way]:
    """The shortest way from a spot to itself; empty if there is none."""
    ahead: list[list[Way]] = [[way] for way in leaving.get(start, ())]
    seen = {start}
    for path in ahead:
        end = path[-1].destination
        if end == start:
            return path
        if end not in seen:
            seen.add(end)
            ahead += [[*path, way] for way in leaving.get(end, ())]
    return []


def _node(spot: Spot) -> Node:
    return Node(spot.cluster, spot.vhost, spot.name)


def _shown(node: Node) -> str:
    return f"exchange {node.exchange!r} in vhost {node.vhost!r} of {node.cluster}"
