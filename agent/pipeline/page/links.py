"""Links: tables of the time that they spent in each status, their groups, timelines, and availability by period."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from agent.pipeline.findings import model
from agent.pipeline.findings.model import LinkIdentity, LinkTime, ReportFindings
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import NOTHING, Calendar, brief_percent, count, duration, percent, plural
from agent.pipeline.page.markup import Child, Markup, element, join, nothing, section, table
from agent.pipeline.schema import Bucket
from agent.pipeline.window import Bounds

_LINK_HEADS = ("Link", "Availability", "Down", "Degraded", "Unknown", "Incidents")


def links_table(label: str, links: Iterable[LinkTime], findings: ReportFindings) -> Markup:
    """Links with a timeline lead to it. For how long the lag was critical is a column if it is known of any of them."""
    shown = [*links]
    if all(link.lag_critical is None for link in shown):
        return table(label, _LINK_HEADS, (_link_row(link, findings) for link in shown), class_="numbers")
    lags = (NOTHING if link.lag_critical is None else duration(link.lag_critical) for link in shown)
    rows = ((*_link_row(link, findings), lag) for link, lag in zip(shown, lags, strict=True))
    return table(label, (*_LINK_HEADS, "Lag critical"), rows, class_="numbers")


def _link_row(link: LinkTime, findings: ReportFindings) -> tuple[Child, ...]:
    spent = link.spent
    times = (duration(spent.of(bucket)) for bucket in (Bucket.DOWN, Bucket.DEGRADED, Bucket.UNKNOWN))
    return formatting.linked(link.identity, findings), percent(spent.availability), *times, count(link.incidents)


_GROUP_HEADS = ("Group", "Availability", "Links", "Down", "Degraded", "Incidents", "Messages", "Worst link")
_GROUP_NOTE = "The least available group first; down and degraded are link-hours. --group makes a page of one of them."


def groups(findings: ReportFindings) -> Markup:
    rows = (_group_row(group, number) for number, group in enumerate(findings.groups, 1))
    beside = table("Groups of agents", _GROUP_HEADS, rows, class_="numbers")
    each = (_group_section(group, number, findings) for number, group in enumerate(findings.groups, 1))
    return section("groups", "Groups", beside, *each, note=_GROUP_NOTE)


def _group_row(group: model.GroupTime, number: int) -> tuple[Child, ...]:
    times = (formatting.link_hours(group.spent.of(bucket)) for bucket in (Bucket.DOWN, Bucket.DEGRADED))
    worst = formatting.name(group.worst[0].identity.name, 30) if group.worst else formatting.NOTHING
    counts = (count(group.incidents), count(group.messages))
    name = element("a", formatting.name(group.name), href=f"#{_group_key(number)}")
    return name, percent(group.spent.availability), count(group.links), *times, *counts, worst


def _group_section(group: model.GroupTime, number: int, findings: ReportFindings) -> Markup:
    key = _group_key(number)
    available = f"available {percent(group.spent.availability)} of the time"
    text = f"{plural(group.links, 'link')}, {available}, {plural(group.incidents, 'incident')}."
    links = (
        links_table("Links of the group with the least availability", group.worst, findings)
        if group.worst
        else nothing("All links of this group were fully available.")
    )
    title = element("h3", formatting.name(group.name), id=f"{key}-title")
    return element("section", title, element("p", text), links, id=key, aria_labelledby=f"{key}-title")


def _group_key(number: int) -> str:
    """Names of groups may be anything."""
    return f"group-{number}"


_HEIGHT: Final = 20
_TALL: Final = {Bucket.DOWN: 20, Bucket.DEGRADED: 14, Bucket.UP: 6, Bucket.PAUSED: 6, Bucket.UNKNOWN: 2}
"""Worse states are taller, so that they are visible without colours."""
_GRAVEST: Final = (Bucket.DOWN, Bucket.DEGRADED, Bucket.PAUSED, Bucket.UNKNOWN, Bucket.UP)
_MEANS: Final = {
    Bucket.UP: "up",
    Bucket.DEGRADED: "degraded: blocked or stalled",
    Bucket.DOWN: "down",
    Bucket.PAUSED: "paused",
    Bucket.UNKNOWN: "unknown",
}
_TICKS: Final = 8
_BRIEF: Final = 2.0
"""Seconds; a takeover is shorter, and drawn as half a mark it would look like an outage."""

Look = tuple[Bucket, Bucket]
"""The most frequent state of a slot, and the worst one in it."""


def timelines(findings: ReportFindings, calendar: Calendar) -> Markup:
    if not findings.timelines:
        return section("timelines", "Timelines", nothing("No links."))
    spent = {link.identity: link.spent for link in findings.worst}
    rows = [_timeline(link, percent(spent[link].availability), findings, calendar) for link in findings.timelines]
    slot = duration(findings.window.seconds / findings.slots)
    note = f"The least available links first. Each mark is {slot}; half a mark at the top: worse for a part of it."
    rest = findings.fleet.links - len(rows)
    more = element("p", f"{plural(rest, 'link')} more omitted, no worse than these.", class_="muted") if rest else None
    ticks = element("div", *_ticks(findings.window, calendar), class_="ticks")
    return section("timelines", "Timelines", _legend(), element("div", *rows, ticks, class_="strips"), more, note=note)


def _legend() -> Markup:
    def sample(bucket: Bucket) -> Markup:
        bar = _bar(0, 24, bucket)
        return element("svg", bar, viewBox=f"0 0 24 {_HEIGHT}", width=24, height=_HEIGHT, aria_hidden="true")

    items = (element("li", sample(bucket), text) for bucket, text in _MEANS.items())
    return element("ul", *items, class_="legend", aria_label="What marks mean")


def _timeline(link: LinkIdentity, available: str, findings: ReportFindings, calendar: Calendar) -> Markup:
    bars = (bar for run in _runs(findings.timelines[link]) for bar in _bars(*run, findings, calendar))
    spoken = f"{link.name or link.link}: {available} available"
    box = f"0 0 {findings.slots} {_HEIGHT}"
    drawing = element("svg", *bars, viewBox=box, preserveAspectRatio="none", role="img", aria_label=spoken)
    name = element("p", formatting.link(link), class_="who")
    number = element("p", available, class_="number")
    return element("div", name, number, drawing, class_="strip", id=formatting.anchor(link))


def _runs(slots: Mapping[int, model.TimeSpent]) -> Iterator[tuple[int, int, Look]]:
    """Adjacent slots that look the same are drawn as one."""
    for look, run in groupby(slots, key=lambda slot: _look(slots[slot])):
        numbers = [*run]
        yield numbers[0], numbers[-1] + 1, look


def _look(spent: model.TimeSpent) -> Look:
    there = [bucket for bucket in _GRAVEST if spent.of(bucket) > 0]
    main = max(there, key=spent.of)
    noticed = [bucket for bucket in there if bucket == main or spent.of(bucket) >= _BRIEF]
    return main, min(noticed, key=_GRAVEST.index)


def _bars(first: int, end: int, look: Look, findings: ReportFindings, calendar: Calendar) -> Iterator[Markup]:
    main, worst = look
    length = (findings.window.end - findings.window.start) // findings.slots
    span = Bounds(findings.window.start + first * length, findings.window.start + end * length)
    label = main if main == worst else f"{main}, partly {worst}"
    yield _bar(first, end - first, main, f"{calendar.span(span)}: {label}")
    if worst in (Bucket.DOWN, Bucket.DEGRADED) and worst != main:
        yield element("rect", x=first, y=0, width=end - first, height=_HEIGHT // 2, class_="bar", data_bucket=worst)


def _bar(x: int, width: int, bucket: Bucket, title: str = "") -> Markup:
    height = _TALL[bucket]
    y = _HEIGHT - height if bucket != Bucket.UNKNOWN else _HEIGHT - 4
    tooltip = element("title", title) if title else None
    return element("rect", tooltip, x=x, y=y, width=width, height=height, class_="bar", data_bucket=bucket)


def _ticks(window: Bounds, calendar: Calendar) -> Iterator[Markup]:
    for moment, name in calendar.ticks(window, _TICKS):
        part = (moment - window.start) / max(1, window.end - window.start)
        near = "start" if part < 0.04 else "end" if part > 0.96 else None
        yield element("span", name, style=f"left: {100 * part:.2f}%", data_near=near)


_SHADES: Final = ((100.0, "all"), (99.9, "most"), (99.0, "much"), (90.0, "some"), (0.0, "little"))


def heat_maps(maps: tuple[model.HeatMap, ...], calendar: Calendar) -> Markup:
    shown = [_heat_map(heat, calendar) for heat in maps if heat.rows and heat.periods]
    note = "Time in which a link was up, in percent of the time in which messages should have flowed; never rounded up."
    return section("heat", "Availability by time", *(shown or [nothing("No data.")]), note=note)


def _heat_map(heat: model.HeatMap, calendar: Calendar) -> Markup:
    what = "Cluster to cluster" if heat.kind == "edges" else "Link"
    heads = [element("th", _heat_head(period, heat.unit, calendar), scope="col") for period in heat.periods]
    table = element(
        "table",
        element("caption", f"{what}, by {heat.unit}"),
        element("thead", element("tr", element("th", what, scope="col"), *heads)),
        element("tbody", *(_heat_row(row, heat) for row in heat.rows)),
        class_="heat",
    )
    # Scrollable content has to be reachable without a mouse.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"{what}, by {heat.unit}")


def _heat_head(period: int, unit: str, calendar: Calendar) -> Markup:
    at = calendar.at(period)
    if unit == "hour":
        return element("span", f"{at:%H}", title=calendar.day_and_time(period))
    if unit in ("month", "year"):
        return element("span", f"{at:%b}" if unit == "month" else f"{at:%Y}", title=f"{at:%B %Y}")
    is_first = at.day <= (7 if unit == "week" else 1)
    return element("span", f"{at.day}", element("br") if is_first else None, f"{at:%b}" if is_first else None)


def _heat_row(row: model.HeatRow, heat: model.HeatMap) -> Markup:
    first, second, *more = row.label
    if heat.kind == "edges":
        who = join(formatting.cluster(first, 28), " → ", formatting.name(second, 20))
    else:
        to = (formatting.toward(one, 20) for one in more)
        who = join(formatting.name(first, 28), " from ", formatting.cluster(second, 20), *to)
    cells = [_heat_cell(row.cells.get(period)) for period in heat.periods]
    return element("tr", element("th", who, scope="row"), *cells)


def _heat_cell(value: float | None) -> Markup:
    if value is None:
        return element("td", element("span", "unknown", class_="unseen"), data_shade="none")
    shade = next(name for least, name in _SHADES if value >= least)
    return element("td", brief_percent(value), data_shade=shade, title=percent(value))
