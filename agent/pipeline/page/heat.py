"""Availability by link or pair of clusters and period: numbers in a table, shaded for orientation."""

from __future__ import annotations

from typing import Final

from agent.pipeline.findings.model import Heat, HeatRow
from agent.pipeline.page import words
from agent.pipeline.page.markup import Markup, element, join
from agent.pipeline.page.tables import nothing, section
from agent.pipeline.page.words import Calendar, brief_percent, percent

_SHADES: Final = ((100.0, "all"), (99.9, "most"), (99.0, "much"), (90.0, "some"), (0.0, "little"))


def heat_maps(maps: tuple[Heat, ...], calendar: Calendar) -> Markup:
    drawn = [_map(heat, calendar) for heat in maps if heat.rows and heat.periods]
    note = "Time in which a link was up, in percent of the time in which messages should have flowed; never rounded up."
    return section("heat", "Availability by time", *(drawn or [nothing("No data.")]), note=note)


def _map(heat: Heat, calendar: Calendar) -> Markup:
    what = "Cluster to cluster" if heat.of == "edges" else "Link"
    heads = [element("th", _head(period, heat.unit, calendar), scope="col") for period in heat.periods]
    table = element(
        "table",
        element("caption", f"{what}, by {heat.unit}"),
        element("thead", element("tr", element("th", what, scope="col"), *heads)),
        element("tbody", *(_row(row, heat) for row in heat.rows)),
        class_="heat",
    )
    # Scrollable content has to be reachable without a mouse.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"{what}, by {heat.unit}")


def _head(period: int, unit: str, calendar: Calendar) -> Markup:
    at = calendar.at(period)
    if unit == "hour":
        return element("span", f"{at:%H}", title=calendar.moment(period))
    if unit in ("month", "year"):
        return element("span", f"{at:%b}" if unit == "month" else f"{at:%Y}", title=f"{at:%B %Y}")
    is_first = at.day <= (7 if unit == "week" else 1)
    return element("span", f"{at.day}", element("br") if is_first else None, f"{at:%b}" if is_first else None)


def _row(row: HeatRow, heat: Heat) -> Markup:
    first, second, *more = row.label
    if heat.of == "edges":
        who = join(words.cluster(first, 28), " → ", words.name(second, 20))
    else:
        who = join(words.name(first, 28), " from ", words.cluster(second, 20), *(words.toward(one, 20) for one in more))
    cells = [_cell(row.cells.get(period)) for period in heat.periods]
    return element("tr", element("th", who, scope="row"), *cells)


def _cell(value: float | None) -> Markup:
    if value is None:
        return element("td", element("span", "unknown", class_="unseen"), data_shade="none")
    shade = next(name for least, name in _SHADES if value >= least)
    return element("td", brief_percent(value), data_shade=shade, title=percent(value))
