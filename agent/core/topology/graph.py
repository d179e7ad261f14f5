"""The graph of several agents' links: exchanges, the links that messages pass between them, and how often a message
arrives where, by the rules of `core.rules.hops`.

It is drawn as DOT, and as SVG: one file without scripts or network.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import cos, hypot, pi, sin
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


_NODE: Final = 28.0
_SPACE: Final = 120.0  # along the circle, for each node
_MARGIN: Final = 140.0
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}circle,rect{fill:#e8f0fe;stroke:#3367d6}"
    "path{stroke:#666;fill:none;marker-end:url(#end)}path.queue{stroke-dasharray:6 4}path.shovel{stroke-dasharray:2 4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}circle,rect{fill:#1f2a44}path{stroke:#aaa}}"
)
_ARROWHEAD: Final = (
    '<defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" style="fill:#666;stroke:none"/></marker></defs>'
)
_DOT_STYLES: Final = {"exchange": "solid", "queue": "dashed", "shovel": "dotted"}


@dataclass(frozen=True, slots=True)
class _Arrow:
    start: str
    end: str
    kind: str  # exchange | queue | shovel
    label: str


def label(node: Node) -> str:
    """The label of an exchange; the default vhost isn't named."""
    return _in_vhost(node.cluster, node.vhost, node.exchange)


def end_label(end: CarrierEnd) -> str:
    """The label of an end. An exchange has the same as in `label`, so that both are drawn as one."""
    return _in_vhost(end.cluster, end.vhost, end.name if end.kind == "exchange" else f"{end.kind} {end.name}")


def carrier_label(carrier: Carrier) -> str:
    return "queue link" if carrier.kind == "queue" else f"shovel {carrier.name}"


def _in_vhost(cluster: str, vhost: str, name: str) -> str:
    return f"{cluster} {name}" if vhost == "/" else f"{cluster} {vhost} {name}"


def _places(graph: Graph, carriers: Iterable[Carrier]) -> dict[str, str]:
    """The shape of each label: exchanges are round, queues have corners."""
    ends = sorted({end for carrier in carriers for end in (carrier.source, carrier.destination)})
    queues = {end_label(end): "circle" if end.kind == "exchange" else "rect" for end in ends}
    return {label(node): "circle" for node in graph.nodes} | queues


def _arrows(graph: Graph, carriers: Iterable[Carrier]) -> Iterator[_Arrow]:
    for hop in graph.hops:
        yield _Arrow(label(hop.upstream), label(hop.downstream), "exchange", f"max-hops {hop.max_hops}")
    for carrier in carriers:
        ends = end_label(carrier.source), end_label(carrier.destination)
        yield _Arrow(*ends, carrier.kind, carrier_label(carrier))


def as_dot(graph: Graph, carriers: Sequence[Carrier] = ()) -> str:
    lines = ["digraph federation {", "  rankdir=LR;"]
    lines += [
        f"  {_quoted(place)} [shape={'box' if shape == 'rect' else 'ellipse'}];"
        for place, shape in _places(graph, carriers).items()
    ]
    lines += [
        f"  {_quoted(arrow.start)} -> {_quoted(arrow.end)} "
        f"[label={_quoted(arrow.label)}, style={_DOT_STYLES[arrow.kind]}];"
        for arrow in _arrows(graph, carriers)
    ]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def as_svg(graph: Graph, carriers: Sequence[Carrier] = ()) -> str:
    """The graph on a circle; links in opposite directions are bent apart. Queue links are dashed, shovels dotted."""
    places = _places(graph, carriers)
    radius = max(_SPACE, _SPACE * len(places) / (2 * pi))
    middle = radius + _MARGIN
    at = {
        place: (middle + radius * sin(turn), middle - radius * cos(turn))
        for number, place in enumerate(places)
        for turn in [2 * pi * number / max(1, len(places))]
    }
    size = 2 * middle
    arrows = [
        f'<path class="{arrow.kind}" d="{_bent(at[arrow.start], at[arrow.end])}"><title>'
        f"{_text(f'{arrow.start} to {arrow.end}, {arrow.label}')}</title></path>"
        for arrow in _arrows(graph, carriers)
        if arrow.start != arrow.end
    ]
    shapes = [
        f'{_shape(shape, *at[place])}<text x="{at[place][0]:.1f}" y="{at[place][1] + _NODE + 16:.1f}" '
        f'text-anchor="middle">{_text(place)}</text>'
        for place, shape in places.items()
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size:.0f} {size:.0f}" role="img"'
    named = f'{head} aria-label="Federated exchanges, queue links and shovels">'
    return "\n".join([named, f"<style>{_STYLE}</style>", _ARROWHEAD, *arrows, *shapes, "</svg>"])


def _text(text: str) -> str:
    """The text escaped for XML, which no control character may be in."""
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def _shape(shape: str, x: float, y: float) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_NODE:g}"/>'
    return f'<rect x="{x - _NODE:.1f}" y="{y - _NODE:.1f}" width="{2 * _NODE:g}" height="{2 * _NODE:g}"/>'


def _bent(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A path from edge to edge of two shapes that bends to its left."""
    (x, y), (u, v) = start, end
    length = hypot(u - x, v - y) or 1.0
    right, down = (u - x) / length, (v - y) / length
    bend = length / 8
    middle = (x + u) / 2 + down * bend, (y + v) / 2 - right * bend
    return (
        f"M{x + right * _NODE:.1f} {y + down * _NODE:.1f}"
        f"Q{middle[0]:.1f} {middle[1]:.1f} {u - right * (_NODE + 4):.1f} {v - down * (_NODE + 4):.1f}"
    )
