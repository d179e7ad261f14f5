"""The most severe incidents of single links, in chronological order."""

from __future__ import annotations

from collections.abc import Collection

from agent.pipeline.findings.model import Failures, Incident, Which
from agent.pipeline.page import words
from agent.pipeline.page.markup import Child, Markup, element
from agent.pipeline.page.tables import nothing, section, table
from agent.pipeline.page.words import NOTHING, Calendar, count, duration, plural

_HEADS = ("When", "Link", "Down", "Why", "Waited")


def incidents(failures: Failures, calendar: Calendar, drawn: Collection[Which]) -> Markup:
    if not failures.most_severe:
        return section("incidents", "Incidents", nothing("No incidents."))
    rest = failures.incidents - len(failures.most_severe)
    more = f" {plural(rest, 'shorter incident')} omitted; the table `incidents` has them." if rest else ""
    content = table(
        "Incidents", _HEADS, (_row(incident, calendar, drawn) for incident in failures.most_severe), class_="incidents"
    )
    note = f"Times in which a link was down after a failure; short times up in between don't end an incident.{more}"
    return section("incidents", "Incidents", content, note=note)


def _row(incident: Incident, calendar: Calendar, drawn: Collection[Which]) -> tuple[Child, ...]:
    open_ = element("span", " not over", class_="beside") if incident.open else None
    flaps = f" in {incident.flaps + 1} parts" if incident.flaps else ""
    waited = NOTHING if incident.peak_backlog is None else count(incident.peak_backlog)
    return (
        element("span", calendar.span(incident.span), open_),
        element("span", words.linked(incident.which, drawn)),
        f"{duration(incident.down_seconds)}{flaps}",
        element("bdi", words.why(incident.reason, incident.error)),
        waited,
    )
