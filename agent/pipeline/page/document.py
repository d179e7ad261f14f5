"""The whole page, built from findings only."""

from __future__ import annotations

from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from agent.pipeline.findings.model import Findings
from agent.pipeline.page.charts import charts
from agent.pipeline.page.graph import graph
from agent.pipeline.page.heat import heat_maps
from agent.pipeline.page.incidents import incidents
from agent.pipeline.page.markup import Markup, element, join
from agent.pipeline.page.objectives import objectives
from agent.pipeline.page.overview import overview
from agent.pipeline.page.strips import timelines
from agent.pipeline.page.tables import nothing, section
from agent.pipeline.page.words import TO, Calendar, count

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
        element("p", f"All times {found.zone}.", class_="muted"),
    )


def _content(found: Findings, calendar: Calendar) -> tuple[Markup, ...]:
    if not found.fleet.links:
        said = "No data on links in this window: check that agents export, and that --input, --from and --to are right."
        return (section("nothing", "Nothing to show", nothing(said)),)
    return (
        overview(found, calendar),
        timelines(found, calendar),
        heat_maps(found.heat, calendar),
        charts(found, calendar),
        graph(found),
        objectives(found.promises),
        incidents(found.failures, calendar),
    )


def _footer(found: Findings) -> Markup:
    lines = found.lines
    said = (
        f"From {count(lines.get('read', 0))} lines; {count(lines.get('bad', 0))} were bad and "
        f"{count(lines.get('later_schema', 0))} of a later schema, and were rejected. Availability is the time up "
        "divided by the time up, degraded or down: pauses and unknown times don't count."
    )
    return element("footer", element("p", said))
