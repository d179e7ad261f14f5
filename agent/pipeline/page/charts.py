"""Drawings: messages over time, and the graph of clusters. They are drawn for a phone's width, and placed side by side
on wider screens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log10
from typing import Final

from agent.pipeline.findings.model import ClusterEdge, Percentiles, ReportFindings
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import HARD, NOTHING, Calendar, count, duration, percent, plural, shorten
from agent.pipeline.page.markup import Child, Markup, element, join, nothing, section, table
from agent.pipeline.window import Bounds

_WIDTH: Final = 360
_HEIGHT: Final = 160
_LEFT: Final = 46
_RIGHT: Final = 8
_TOP: Final = 8
_BOTTOM: Final = 20
_TICKS: Final = 5
_DASHES: Final = {"p50": None, "p95": "6 3", "p99": "1.5 3"}

Show = Callable[[float], str]
Points = Sequence[tuple[int, float | None]]


def charts(findings: ReportFindings, calendar: Calendar) -> Markup:
    traffic = findings.traffic
    if not traffic.steps:
        return section("flow", "Messages, transfer times and lag", nothing("No traffic was measured in this period."))
    minutes = duration(traffic.step / 1_000_000)
    messages = {"messages": [(one.start, float(one.messages)) for one in traffic.steps]}
    transfer = {part: [(one.start, getattr(one.transfer, part)) for one in traffic.steps] for part in _DASHES}
    lag = {part: [(one.start, getattr(one.lag, part)) for one in traffic.steps] for part in _DASHES}
    chart = partial(_chart, findings=findings, calendar=calendar)
    drawn = (
        chart(f"Messages in {minutes}", messages, count),
        chart("Transfer time, delivery to confirm", transfer, _short_duration, percentiles=traffic.transfer),
        chart("Lag, messages waiting at the peak", lag, count, percentiles=traffic.lag),
    )
    note = (
        "Transfer times are each link's own percentiles of five minutes, averaged by messages; lag is the peak backlog "
        f"of each link in five minutes. A point is {minutes}."
    )
    return section("flow", "Messages, transfer times and lag", element("div", *drawn, class_="charts"), note=note)


def _short_duration(seconds: float) -> str:
    return f"{seconds * 1000:.3g}{HARD}ms" if 0 < seconds < 1 else duration(seconds) if seconds else "0"


def _chart(
    title: str,
    lines: Mapping[str, Points],
    show: Show,
    *,
    findings: ReportFindings,
    calendar: Calendar,
    percentiles: Percentiles | None = None,
) -> Markup:
    window = findings.window
    scale = _Scale(window, _ceiling(max(value or 0.0 for points in lines.values() for _, value in points)))
    drawing = element(
        "svg",
        *(_rule(scale, part, show) for part in (0.0, 0.5, 1.0)),
        *_times(scale, calendar),
        *(path for name, points in lines.items() for path in _paths(name, points, scale, findings.traffic.step)),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=title,
    )
    return element("figure", element("figcaption", title, _legend(percentiles, show) if percentiles else None), drawing)


def _legend(percentiles: Percentiles, show: Show) -> Markup:
    """Each line with its percentile over the whole window."""
    values = {part: getattr(percentiles, part) for part in _DASHES}
    shown = {part: NOTHING if value is None else show(value) for part, value in values.items()}
    items = (element("li", _stroke(part), f"{part} ", element("b", value)) for part, value in shown.items())
    return element("ul", *items, class_="legend")


def _stroke(part: str) -> Markup:
    line = element("path", d="M0 4h20", class_="line", data_part=part, stroke_dasharray=_DASHES[part])
    return element("svg", line, viewBox="0 0 20 8", width=20, height=8, aria_hidden="true")


@dataclass(frozen=True, slots=True)
class _Scale:
    window: Bounds
    top: float

    def x(self, moment: float) -> float:
        part = (moment - self.window.start) / max(1, self.window.end - self.window.start)
        return _LEFT + min(1.0, max(0.0, part)) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _BOTTOM - _TOP)


def _ceiling(value: float) -> float:
    """The smallest of 1, 2, 4, 10, 20, 40 … that is not below the value."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** int(log10(value) // 1)
    return next(factor * power for factor in (1, 2, 4, 10) if factor * power >= value)


def _rule(scale: _Scale, part: float, show: Show) -> Markup:
    y = scale.y(part * scale.top)
    return join(
        element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="rule"),
        element("text", show(part * scale.top), x=_LEFT - 5, y=y + 4, class_="tick", text_anchor="end"),
    )


def _times(scale: _Scale, calendar: Calendar) -> Iterator[Markup]:
    for moment, name in calendar.ticks(scale.window, _TICKS):
        x, half = scale.x(moment), 3.0 * len(name)
        anchor = "start" if x - half < _LEFT else "end" if x + half > _WIDTH else "middle"
        yield element("line", x1=x, x2=x, y1=_HEIGHT - _BOTTOM, y2=_HEIGHT - _BOTTOM + 4, class_="rule")
        yield element("text", name, x=x, y=_HEIGHT - 5, class_="tick", text_anchor=anchor)


def _paths(name: str, points: Points, scale: _Scale, step: int) -> Iterator[Markup]:
    """Periods without data are gaps; a single point is drawn with its duration."""
    runs: list[list[tuple[int, float]]] = [[]]
    last = None
    for start, value in points:
        if value is None or (last is not None and start - last > step):
            runs.append([])
        if value is not None:
            runs[-1].append((start, value))
        last = start
    for run in filter(None, runs):
        path = _path(run, scale, step)
        yield element("path", d=path, class_="line", data_part=name, stroke_dasharray=_DASHES.get(name))


def _path(run: Sequence[tuple[int, float]], scale: _Scale, step: int) -> str:
    if len(run) == 1:
        [(start, value)] = run
        return f"M{scale.x(start):.1f} {scale.y(value):.1f}H{scale.x(start + step):.1f}"
    return "M" + "L".join(f"{scale.x(start + step / 2):.1f} {scale.y(value):.1f}" for start, value in run)


_BOX: Final = 108
_HIGH: Final = 26
_ROW: Final = 40
_LETTERS: Final = 15
_KINDS: Final = ((99.9, "up", None), (99.0, "degraded", "7 3"), (0.0, "down", "2 3"))
_MEANS: Final = {"up": "99.9 % or more", "degraded": "99 % or more", "down": "less"}


def graph(findings: ReportFindings) -> Markup:
    """Upstream clusters on the left, downstream ones on the right; a cluster that is both is on both sides."""
    edges = findings.edges.busiest
    if not edges:
        return section("clusters", "Clusters", nothing("No messages between clusters."))
    rest = findings.edges.count - len(edges)
    more = element("p", f"{plural(rest, 'quieter pair')} of clusters omitted.", class_="muted") if rest else None
    heads = ("From → to", "Availability", "Links", "Messages")
    pairs = table("From cluster to cluster", heads, map(_pair_row, edges), class_="numbers")
    drawn = element("div", element("div", _graph_legend(), _drawing(edges)), pairs, class_="beside-each-other")
    note = "The width of an arrow shows its messages; its stroke shows how available its links were."
    return section("clusters", "Clusters", drawn, more, note=note)


def _graph_legend() -> Markup:
    items = [element("li", _arrow_sample(kind, dash), _MEANS[kind]) for _, kind, dash in _KINDS]
    return element("ul", *items, class_="legend", aria_label="What strokes mean")


def _arrow_sample(kind: str, dash: str | None) -> Markup:
    line = element("path", d="M0 4h32", class_="arrow", data_bucket=kind, stroke_dasharray=dash, stroke_width=2.5)
    return element("svg", line, viewBox="0 0 32 8", width=32, height=8, aria_hidden="true")


def _drawing(edges: Sequence[ClusterEdge]) -> Markup:
    sources, targets = sorted({edge.source or "" for edge in edges}), sorted({edge.target or "" for edge in edges})
    height = max(len(sources), len(targets)) * _ROW
    left, right = (
        {name: height * (at + 0.5) / len(names) for at, name in enumerate(names)} for names in (sources, targets)
    )
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


def _arrow(edge: ClusterEdge, start: float, end: float, most: int) -> Markup:
    kind, dash = _kind(edge.spent.availability)
    thick = 1.5 + 6 * log10(1 + edge.messages) / max(1.0, log10(1 + most))
    bend = _WIDTH / 2
    path = f"M{_BOX} {start:.1f}C{bend:.0f} {start:.1f} {bend:.0f} {end:.1f} {_WIDTH - _BOX} {end:.1f}"
    ends = f"{edge.source or formatting.UNREACHED} → {edge.target}"
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
        element("title", name or formatting.UNREACHED),
        element("rect", x=x + 0.5, y=y - _HIGH / 2, width=_BOX - 1, height=_HIGH, rx=5, class_="box"),
        element("text", shorten(name or formatting.UNREACHED, _LETTERS), x=x + _BOX / 2, y=y + 4, class_="label"),
    )


def _pair_row(edge: ClusterEdge) -> tuple[Child, ...]:
    ends = element("span", formatting.cluster(edge.source, 40), " → ", formatting.name(edge.target, 40))
    return ends, percent(edge.spent.availability), count(edge.links), count(edge.messages)
