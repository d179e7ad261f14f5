"""The federated exchanges, queue links and shovels as DOT and as SVG: one file without scripts or network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import cos, hypot, pi, sin
from typing import Final

from agent.core.topology.graph import Carrier, CarrierEnd, Graph, Node

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
