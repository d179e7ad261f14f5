"""The whole page, built from findings only."""

from __future__ import annotations

from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from agent.pipeline.findings.model import ReportFindings
from agent.pipeline.page.charts import charts, graph
from agent.pipeline.page.formatting import TO, Calendar, count, plural
from agent.pipeline.page.links import heat_maps, timelines
from agent.pipeline.page.markup import Markup, element, join, nothing, section
from agent.pipeline.page.moves import moves, standbys
from agent.pipeline.page.overview import incidents, objectives, overview

_SECTIONS: Final = (
    ("outages", "What happened"), ("groups", "Groups"), ("worst", "Worst links"), ("timelines", "Timelines"),
    ("heat", "By time"), ("flow", "Messages"), ("clusters", "Clusters"), ("objectives", "Objectives"),
    ("moves", "Moves"), ("standby", "Standby"), ("incidents", "Incidents"),
)  # fmt: skip
# Nothing is loaded and nothing runs, whatever a name contains.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(findings: ReportFindings) -> str:
    calendar = Calendar(ZoneInfo(findings.zone))
    body = join(_header(findings, calendar), element("main", *_content(findings, calendar)), _footer(findings))
    document = element("html", element("head", *_head()), element("body", body), lang="en")
    return f"<!doctype html>\n{document}\n"


def _head() -> tuple[Markup, ...]:
    # A package resource, because the package may be in a zip that was submitted to a cluster.
    style = resources.files("agent.pipeline.page").joinpath("style.css").read_text(encoding="utf-8")
    return (
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("link", rel="icon", href="data:,"),
        element("title", "Federation report"),
        element("style", Markup(style)),
    )


def _header(findings: ReportFindings, calendar: Calendar) -> Markup:
    window = findings.window
    text = f"{calendar.date_and_time(window.start)} {TO} {calendar.date_and_time(window.end)}"
    return element(
        "header",
        element("h1", "Federation report"),
        element("p", text if findings.fleet.links else "", class_="window"),
        element("p", f"All times are in the time zone {findings.zone}.", class_="muted"),
        element("p", f"Only {findings.link_filter}.", class_="window") if findings.link_filter else None,
        _contents(findings) if findings.fleet.links else None,
    )


def _contents(findings: ReportFindings) -> Markup:
    shown = {
        "groups": len(findings.groups) > 1,
        "moves": bool(findings.moves),
        "standby": bool(findings.standbys),
    }
    entries = (element("li", element("a", title, href=f"#{key}")) for key, title in _SECTIONS if shown.get(key, True))
    return element("nav", element("ul", *entries), aria_label="Sections")


def _content(findings: ReportFindings, calendar: Calendar) -> tuple[Markup, ...]:
    if not findings.fleet.links:
        text = "No data on links in this window: check that agents export, and that --input, --from and --to are right."
        if findings.link_filter:
            text = "No link that --link, --upstream and --group choose has data in this window: check their names."
        return (section("nothing", "Nothing to show", nothing(text)),)
    return (
        overview(findings, calendar),
        timelines(findings, calendar),
        heat_maps(findings.heat_maps, calendar),
        charts(findings, calendar),
        graph(findings),
        objectives(findings),
        *filter(None, [moves(findings, calendar), standbys(findings, calendar)]),
        incidents(findings, calendar),
    )


def _footer(findings: ReportFindings) -> Markup:
    lines = findings.lines
    text = (
        f"From {plural(lines.get('read', 0), 'line')}. Rejected: {count(lines.get('bad', 0))} bad, "
        f"{count(lines.get('later_schema', 0))} of a later schema. Availability is the time up "
        "divided by the time up, degraded or down: pauses and unknown times don't count."
    )
    return element("footer", element("p", text))
