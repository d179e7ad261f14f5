"""A timeline for each link; worse states are taller, so that they are visible without colours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from agent.pipeline.findings.model import Findings, Slot, Span, Strip, Which
from agent.pipeline.page import words
from agent.pipeline.page.markup import Child, Markup, element
from agent.pipeline.page.tables import nothing, section
from agent.pipeline.page.words import Calendar, percent, plural
from agent.pipeline.schema import Bucket

_HEIGHT: Final = 20
_TALL: Final = {Bucket.DOWN: 20, Bucket.DEGRADED: 14, Bucket.UP: 6, Bucket.PAUSED: 6, Bucket.UNKNOWN: 2}
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

Drawn = tuple[Bucket, Bucket]
"""The most frequent state of a slot, and the worst one in it."""


def timelines(found: Findings, calendar: Calendar) -> Markup:
    if not found.strips:
        return section("timelines", "Timelines", nothing("No links."))
    spent = {link.which: link.spent for link in found.worst}
    rows = [_row(strip, percent(spent[strip.which].availability), found, calendar) for strip in found.strips]
    slot = words.duration(found.window.seconds / found.slots)
    note = f"The least available links first. Each mark is {slot}; half a mark at the top: worse for a part of it."
    rest = found.fleet.links - len(rows)
    more = element("p", f"{plural(rest, 'link')} more omitted, no worse than these.", class_="muted") if rest else None
    return section(
        "timelines",
        "Timelines",
        _legend(),
        element("div", *rows, element("div", *_ticks(found.window, calendar), class_="ticks"), class_="strips"),
        more,
        note=note,
    )


def drawn(found: Findings) -> frozenset[Which]:
    """The links with a timeline, which others lead to."""
    return frozenset(strip.which for strip in found.strips)


def _legend() -> Markup:
    items = [element("li", _sample(bucket), text) for bucket, text in _MEANS.items()]
    return element("ul", *items, class_="legend", aria_label="What marks mean")


def _sample(bucket: Bucket) -> Markup:
    return element(
        "svg", _bar(0, 24, bucket), viewBox=f"0 0 24 {_HEIGHT}", width=24, height=_HEIGHT, aria_hidden="true"
    )  # fmt: skip


def _row(strip: Strip, available: str, found: Findings, calendar: Calendar) -> Markup:
    runs = [*_runs(strip)]
    bars = [bar for run in runs for bar in _bars(*run, found, calendar)]
    spoken = f"{strip.which.name or strip.which.link}: {available} available"
    drawing = element(
        "svg", *bars, viewBox=f"0 0 {found.slots} {_HEIGHT}", preserveAspectRatio="none", role="img", aria_label=spoken
    )
    cells: tuple[Child, ...] = (
        element("p", words.link(strip.which), class_="who"),
        element("p", available, class_="number"),
    )
    return element("div", *cells, drawing, class_="strip", id=words.anchor(strip.which))


def _runs(strip: Strip) -> Iterator[tuple[int, int, Drawn]]:
    """Adjacent slots that look the same are drawn as one."""
    by_look = groupby(strip.slots, key=_drawn)
    for drawn, slots in by_look:
        numbers = [slot.number for slot in slots]
        yield numbers[0], numbers[-1] + 1, drawn


def _drawn(slot: Slot) -> Drawn:
    there = [bucket for bucket in _GRAVEST if slot.spent.of(bucket) > 0]
    main = max(there, key=slot.spent.of)
    noticed = [bucket for bucket in there if bucket == main or slot.spent.of(bucket) >= _BRIEF]
    return main, min(noticed, key=_GRAVEST.index)


def _bars(first: int, end: int, drawn: Drawn, found: Findings, calendar: Calendar) -> Iterator[Markup]:
    main, worst = drawn
    length = (found.window.end - found.window.start) // found.slots
    span = Span(found.window.start + first * length, found.window.start + end * length)
    label = main if main == worst else f"{main}, partly {worst}"
    yield _bar(first, end - first, main, f"{calendar.span(span)}: {label}")
    if worst in (Bucket.DOWN, Bucket.DEGRADED) and worst != main:
        yield element("rect", x=first, y=0, width=end - first, height=_HEIGHT // 2, class_="bar", data_bucket=worst)


def _bar(x: int, width: int, bucket: Bucket, title: str = "") -> Markup:
    height = _TALL[bucket]
    y = _HEIGHT - height if bucket != Bucket.UNKNOWN else _HEIGHT - 4
    said = element("title", title) if title else None
    return element("rect", said, x=x, y=y, width=width, height=height, class_="bar", data_bucket=bucket)


def _ticks(window: Span, calendar: Calendar) -> Iterator[Markup]:
    for moment, name in calendar.ticks(window, _TICKS):
        part = (moment - window.start) / max(1, window.end - window.start)
        near = "start" if part < 0.04 else "end" if part > 0.96 else None
        yield element("span", name, style=f"left: {100 * part:.2f}%", data_near=near)
