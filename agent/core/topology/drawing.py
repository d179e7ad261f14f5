"""The graph as DOT and as SVG, for one file without scripts or network."""

from __future__ import annotations

from html import escape
from math import cos, hypot, pi, sin
from typing import Final

from agent.core.topology.graph import Graph, Node

_NODE: Final = 28.0
_SPACE: Final = 120.0  # along the circle, for each node
_MARGIN: Final = 140.0
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}circle{fill:#e8f0fe;stroke:#3367d6}"
    "path{stroke:#666;fill:none;marker-end:url(#end)}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}circle{fill:#1f2a44}path{stroke:#aaa}}"
)
_ARROWHEAD: Final = (
    '<defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" style="fill:#666;stroke:none"/></marker></defs>'
)


def label(node: Node) -> str:
    """As short as it can be: the default vhost isn't named."""
    return f"{node.cluster} {node.exchange}" if node.vhost == "/" else f"{node.cluster} {node.vhost} {node.exchange}"


def as_dot(graph: Graph) -> str:
    lines = ["digraph federation {", "  rankdir=LR;"]
    lines += [f"  {_quoted(label(node))};" for node in graph.nodes]
    lines += [
        f"  {_quoted(label(hop.upstream))} -> {_quoted(label(hop.downstream))} "
        f"[label={_quoted(f'max-hops {hop.max_hops}')}];"
        for hop in graph.hops
    ]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def as_svg(graph: Graph) -> str:
    """On a circle; two links in opposite directions are bent apart."""
    nodes = graph.nodes
    radius = max(_SPACE, _SPACE * len(nodes) / (2 * pi))
    middle = radius + _MARGIN
    at = {
        node: (middle + radius * sin(turn), middle - radius * cos(turn))
        for number, node in enumerate(nodes)
        for turn in [2 * pi * number / max(1, len(nodes))]
    }
    size = 2 * middle
    arrows = [
        f'<path d="{_bent(at[hop.upstream], at[hop.downstream])}"><title>'
        f"{escape(f'{label(hop.upstream)} to {label(hop.downstream)}, max-hops {hop.max_hops}')}</title></path>"
        for hop in graph.hops
        if hop.upstream != hop.downstream
    ]
    places = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_NODE:g}"/>'
        f'<text x="{x:.1f}" y="{y + _NODE + 16:.1f}" text-anchor="middle">{escape(label(node))}</text>'
        for node, (x, y) in at.items()
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size:.0f} {size:.0f}" role="img"'
    named = f'{head} aria-label="Which exchange is federated with which">'
    return "\n".join([named, f"<style>{_STYLE}</style>", _ARROWHEAD, *arrows, *places, "</svg>"])


def _bent(start: tuple[float, float], end: tuple[float, float]) -> str:
    """From edge to edge of two circles, by a way that bends to its left."""
    (x, y), (u, v) = start, end
    length = hypot(u - x, v - y) or 1.0
    right, down = (u - x) / length, (v - y) / length
    bend = length / 8
    middle = (x + u) / 2 + down * bend, (y + v) / 2 - right * bend
    return (
        f"M{x + right * _NODE:.1f} {y + down * _NODE:.1f}"
        f"Q{middle[0]:.1f} {middle[1]:.1f} {u - right * (_NODE + 4):.1f} {v - down * (_NODE + 4):.1f}"
    )
