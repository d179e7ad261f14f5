"""Upstream clusters on the left, downstream clusters on the right; a cluster that is both is on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Final

from agent.pipeline.findings.model import Edge, Findings
from agent.pipeline.page import words
from agent.pipeline.page.markup import Child, Markup, element
from agent.pipeline.page.tables import nothing, section, table
from agent.pipeline.page.words import count, percent, plural, shorten

_WIDTH: Final = 360
_BOX: Final = 108
_HIGH: Final = 26
_ROW: Final = 40
_LETTERS: Final = 15
_KINDS: Final = ((99.9, "up", None), (99.0, "degraded", "7 3"), (0.0, "down", "2 3"))
_MEANS: Final = {"up": "99.9 % or more", "degraded": "99 % or more", "down": "less"}


def graph(found: Findings) -> Markup:
    edges = found.edges.busiest
    if not edges:
        return section("clusters", "Clusters", nothing("No messages between clusters."))
    rest = found.edges.count - len(edges)
    more = element("p", f"{plural(rest, 'quieter pair')} of clusters omitted.", class_="muted") if rest else None
    drawn = element("div", element("div", _legend(), _drawing(edges)), _table(edges), class_="beside-each-other")
    note = "The width of an arrow shows its messages; its stroke shows how available its links were."
    return section("clusters", "Clusters", drawn, more, note=note)


def _legend() -> Markup:
    items = [element("li", _stroke(kind, dash), _MEANS[kind]) for _, kind, dash in _KINDS]
    return element("ul", *items, class_="legend", aria_label="What strokes mean")


def _stroke(kind: str, dash: str | None) -> Markup:
    line = element("path", d="M0 4h32", class_="arrow", data_bucket=kind, stroke_dasharray=dash, stroke_width=2.5)
    return element("svg", line, viewBox="0 0 32 8", width=32, height=8, aria_hidden="true")


def _drawing(edges: Sequence[Edge]) -> Markup:
    sources, targets = (sorted({end or "" for end in ends}) for ends in _ends(edges))
    height = max(len(sources), len(targets)) * _ROW
    left = {name: _middle(at, len(sources), height) for at, name in enumerate(sources)}
    right = {name: _middle(at, len(targets), height) for at, name in enumerate(targets)}
    most = max(edge.messages for edge in edges)
    return element(
        "svg",
        *(_arrow(edge, left[edge.source or ""], right[edge.target or ""], most) for edge in edges),
        *(_box(name, 0, y) for name, y in left.items()),
        *(_box(name, _WIDTH - _BOX, y) for name, y in right.items()),
        viewBox=f"0 0 {_WIDTH} {height}",
        class_="graph",
        role="img",
        aria_label=f"{plural(len(edges), 'pair')} of clusters; the table has the same data",
    )


def _ends(edges: Sequence[Edge]) -> tuple[list[str | None], list[str | None]]:
    return [edge.source for edge in edges], [edge.target for edge in edges]


def _middle(at: int, among: int, height: int) -> float:
    return height * (at + 0.5) / among


def _arrow(edge: Edge, start: float, end: float, most: int) -> Markup:
    kind, dash = _kind(edge.spent.availability)
    thick = 1.5 + 6 * log10(1 + edge.messages) / max(1.0, log10(1 + most))
    bend = _WIDTH / 2
    path = f"M{_BOX} {start:.1f}C{bend:.0f} {start:.1f} {bend:.0f} {end:.1f} {_WIDTH - _BOX} {end:.1f}"
    ends = f"{edge.source or words.UNREACHED} → {edge.target}"
    tooltip = f"{ends}: {percent(edge.spent.availability)}, {count(edge.messages)} messages"
    return element(
        "path", element("title", tooltip), d=path, class_="arrow", data_bucket=kind,
        stroke_dasharray=dash, stroke_width=thick,
    )  # fmt: skip


def _kind(availability: float | None) -> tuple[str, str | None]:
    if availability is None:
        return "unknown", "1 4"
    return next((kind, dash) for least, kind, dash in _KINDS if availability >= least)


def _box(name: str, x: int, y: float) -> Markup:
    return element(
        "g",
        element("title", name or words.UNREACHED),
        element("rect", x=x + 0.5, y=y - _HIGH / 2, width=_BOX - 1, height=_HIGH, rx=5, class_="box"),
        element("text", shorten(name or words.UNREACHED, _LETTERS), x=x + _BOX / 2, y=y + 4, class_="label"),
    )


def _table(edges: Sequence[Edge]) -> Markup:
    return table(
        "From cluster to cluster",
        ("From → to", "Availability", "Links", "Messages"),
        map(_row, edges),
        class_="numbers",
    )


def _row(edge: Edge) -> tuple[Child, ...]:
    ends = element("span", words.cluster(edge.source, 40), " → ", words.name(edge.target, 40))
    return ends, percent(edge.spent.availability), count(edge.links), count(edge.messages)
