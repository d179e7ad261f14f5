"""The whole page, built from findings only."""

from __future__ import annotations

from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from agent.pipeline.findings.model import Findings
from agent.pipeline.page.charts import charts, graph
from agent.pipeline.page.formatting import TO, Calendar, count, plural
from agent.pipeline.page.links import drawn, heat_maps, timelines
from agent.pipeline.page.markup import Markup, element, join, nothing, section
from agent.pipeline.page.objectives import objectives
from agent.pipeline.page.overview import incidents, overview

_SECTIONS: Final[tuple[tuple[str, str], ...]] = (
    ("outages", "What happened"), ("groups", "Groups"), ("worst", "Worst links"), ("timelines", "Timelines"),
    ("heat", "By time"), ("flow", "Messages"), ("clusters", "Clusters"), ("objectives", "Objectives"),
    ("incidents", "Incidents"),
)  # fmt: skip
# Nothing is loaded and nothing runs, whatever a name contains.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(found: Findings) -> str:
    calendar = Calendar(ZoneInfo(found.zone))
    body = join(_header(found, calendar), element("main", *_content(found, calendar)), _footer(found))
    document = element("html", element("head", *_head()), element("body", body), lang="en")
    return f"<!doctype html>\n{document}\n"


def _head() -> tuple[Markup, ...]:
    return (
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("link", rel="icon", href="data:,"),
        element("title", "Federation report"),
        element("style", Markup(_style())),
    )


def _style() -> str:
    """Read as a package resource, because the package may be in a zip that was submitted to a cluster."""
    return resources.files("agent.pipeline.page").joinpath("style.css").read_text(encoding="utf-8")


def _header(found: Findings, calendar: Calendar) -> Markup:
    window = found.window
    said = f"{calendar.whole(window.start)} {TO} {calendar.whole(window.end)}"
    return element(
        "header",
        element("h1", "Federation report"),
        element("p", said if found.fleet.links else "", class_="window"),
        element("p", f"All times are in the time zone {found.zone}.", class_="muted"),
        element("p", f"Only {found.of}.", class_="window") if found.of else None,
        _contents(found) if found.fleet.links else None,
    )


def _contents(found: Findings) -> Markup:
    there = (one for one in _SECTIONS if one[0] != "groups" or len(found.groups) > 1)
    entries = (element("li", element("a", title, href=f"#{key}")) for key, title in there)
    return element("nav", element("ul", *entries), aria_label="Sections")


def _content(found: Findings, calendar: Calendar) -> tuple[Markup, ...]:
    if not found.fleet.links:
        said = "No data on links in this window: check that agents export, and that --input, --from and --to are right."
        if found.of:
            said = "No link that --link, --upstream and --group choose has data in this window: check their names."
        return (section("nothing", "Nothing to show", nothing(said)),)
    return (
        overview(found, calendar),
        timelines(found, calendar),
        heat_maps(found.heat, calendar),
        charts(found, calendar),
        graph(found),
        objectives(found.promises, drawn(found)),
        incidents(found.failures, calendar, drawn(found)),
    )


def _footer(found: Findings) -> Markup:
    lines = found.lines
    said = (
        f"From {plural(lines.get('read', 0), 'line')}. Rejected: {count(lines.get('bad', 0))} bad, "
        f"{count(lines.get('later_schema', 0))} of a later schema. Availability is the time up "
        "divided by the time up, degraded or down: pauses and unknown times don't count."
    )
    return element("footer", element("p", said))
