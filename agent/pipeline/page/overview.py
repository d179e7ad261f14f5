"""The overview: availability, its change, effects on messages, and outages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from agent.pipeline.findings.model import (
    BEHIND,
    Account,
    Failures,
    Findings,
    Fleet,
    Incident,
    LagTime,
    LinkTime,
    Span,
    Trouble,
    Which,
)
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import NOTHING, Calendar, count, duration, percent, plural
from agent.pipeline.page.links import drawn, groups, links_table
from agent.pipeline.page.markup import Child, Markup, element, join, nothing, section, table
from agent.pipeline.schema import Bucket

TOLD = 8
WORST = 10
_SAME = 0.0005
"""In percent: less counts as no change."""


def overview(found: Findings, calendar: Calendar) -> Markup:
    return join(
        element(
            "div",
            _verdict(found),
            _accounted(found.account),
            _lagging(found.fleet.lag),
            _headline(found),
            _figures(found),
            class_="overview",
        ),
        _outages(found, calendar),
        groups(found.groups, drawn(found)) if len(found.groups) > 1 else None,
        _worst(found.worst[:WORST], drawn(found)),
    )


def _verdict(found: Findings) -> Markup | None:
    """For who reads no further: whether the objective was met, and whether it was better before."""
    judged = [one for one in found.promises.objectives if one.measured_by == "time" and one.attained is not None]
    if not judged:
        return None
    one = min(judged, key=lambda one: (one.attained or 0.0) - one.target)
    attained, before = one.attained or 0.0, _before(found.fleet)
    verdict = "met" if attained >= one.target else "missed"
    links = f"{count(one.met)} of {plural(one.links, 'link')} met it" if one.links > 1 else ""
    said = f"Objective of {one.target:g}{formatting.HARD}% {verdict} with {percent(attained)}"
    more = "; ".join(filter(None, (said, links, before)))
    return element("p", f"{more}.", class_="verdict", data_bucket=Bucket.UP if verdict == "met" else Bucket.DOWN)


def _accounted(books: Account) -> Markup | None:
    """`2.17 G messages taken, all accounted for but 12 on 2 links.`"""
    older = plural(books.not_accounted_links, "link")
    if not books.taken:
        if not books.not_accounted_links:
            return None
        return element("p", f"Not accounted for: agents of {older} don't count what they take.", class_="muted")
    said = f"{count(books.taken)} {formatting.noun(books.taken, 'message')} taken, all accounted for"
    if books.unexplained:
        said += f" but {count(books.unexplained)} on {plural(books.unexplained_links, 'link')}"
    if books.not_accounted_links:
        said += f"; {older} not accounted for, or not all the time"
    unexplained = books.unexplained or books.unexplained_upstream
    more = _entered(books) if books.upstream_links else ""
    return element("p", f"{said}.{more}", class_="verdict", data_bucket=Bucket.DEGRADED if unexplained else Bucket.UP)


def _entered(books: Account) -> str:
    """` Upstream, 2.2 G messages entered the queues of 3 links: 30 expired or were removed, …`"""
    entered = f"{count(books.entered)} {formatting.noun(books.entered, 'message')}"
    said = f" Upstream, {entered} entered the queues of {plural(books.upstream_links, 'link')}"
    more = [f"{count(books.expired)} expired or were removed"] if books.expired else []
    more += [f"{count(books.repeated)} were forwarded twice"] if books.repeated else []
    if books.unexplained_upstream:
        on = plural(books.unexplained_upstream_links, "link")
        more.append(f"{count(books.unexplained_upstream)} on {on} are not accounted for")
    else:
        more.append("all accounted for")
    return f"{said}: {', '.join(more)}."


def _lagging(lag: LagTime) -> Markup | None:
    """`2 of 14 links with lag-critical were further behind, 1.2 link-hours in all.`"""
    if lag.seconds is None:
        return None
    which = f"{count(lag.links) if lag.links else 'None'} of {plural(lag.known_links, 'link')} with lag-critical"
    were = "was" if lag.links <= 1 else "were"
    more = f", {_in_all(lag.seconds, lag.links)} in all" if lag.links else ""
    bucket = Bucket.DEGRADED if lag.links else Bucket.UP
    return element("p", f"{which} {were} further behind{more}.", class_="verdict", data_bucket=bucket)


def _before(fleet: Fleet) -> str:
    now, before = fleet.spent.availability, fleet.previous.availability if fleet.previous else None
    if now is None or before is None:
        return "the period before is not known"
    change = now - before
    return f"{'as' if abs(change) < _SAME else 'better than' if change > 0 else 'worse than'} in the period before"


def _headline(found: Findings) -> Markup:
    availability = found.fleet.spent.availability
    said = percent(availability) if availability is not None else "No data"
    return element(
        "div",
        element("p", said, class_="headline"),
        element("p", f"availability of {plural(found.fleet.links, 'link')}, all together"),
        _trend(found.fleet, found.window),
        element("p", _known(found), class_="muted") if found.fleet.links else None,
        class_="lead",
    )


def _trend(fleet: Fleet, window: Span) -> Markup:
    now, before = fleet.spent.availability, fleet.previous.availability if fleet.previous else None
    length = duration(window.seconds)
    if now is None or before is None:
        return element("p", f"No data for the {length} before, so there is no comparison.", class_="trend")
    change, held = now - before, _held(fleet, window)
    if abs(change) < _SAME:
        return element("p", f"As in the {length} before ({percent(before)}).{held}", class_="trend")
    better = change > 0
    than = f"{'better' if better else 'worse'} than in the {length} before ({percent(before)})"
    said = f"{abs(change):.2g} points {than}.{held}"
    return element(
        "p", element("span", "▲ " if better else "▼ ", aria_hidden="true"), said,
        class_="trend", data_bucket=Bucket.UP if better else Bucket.DOWN,
    )  # fmt: skip


def _held(fleet: Fleet, window: Span) -> str:
    """Empty if the tables have all of the period before."""
    before = fleet.previous.of(*Bucket) if fleet.previous else 0.0
    share = before / (fleet.previous_links * window.seconds) if fleet.previous_links else 0.0
    return "" if share > 0.99 else f" The tables hold {100 * share:.0f} % of it."


def _known(found: Findings) -> str:
    coverage = found.fleet.spent.coverage
    return f"{percent(coverage)} of the time is known; the rest doesn't count."


def _figures(found: Findings) -> Markup:
    return element("dl", *(_figure(*figure) for figure in _figures_of(found)), class_="figures")


def _figure(title: str, value: str, more: str = "", bucket: Bucket | None = None) -> Markup:
    shown = element("dd", more, class_="more") if more else None
    return element("div", element("dt", title), element("dd", value, class_="figure"), shown, data_bucket=bucket)


def _figures_of(found: Findings) -> Iterator[tuple[str, str, str, Bucket | None]]:
    spent, failed, cost = found.fleet.spent, found.failures, found.flow.cost
    down, degraded = spent.of(Bucket.DOWN), spent.of(Bucket.DEGRADED)
    flowing = spent.of(Bucket.UP, Bucket.DEGRADED, Bucket.DOWN)
    for title, seconds, bucket in (("Down", down, Bucket.DOWN), ("Degraded", degraded, Bucket.DEGRADED)):
        more = f"link-hours, {formatting.share(seconds, flowing)} of the time"
        yield title, formatting.link_hours(seconds), more, bucket if seconds else None
    if (behind := found.fleet.lag.seconds) is not None:
        more = "link-hours further behind than lag-critical"
        yield "Lag critical", formatting.link_hours(behind), more, Bucket.DEGRADED if behind else None
    shared = f"{plural(failed.shared, 'outage')} of many links" if failed.shared else ""
    still = f"{failed.open} still open" if failed.open else ""
    yield "Incidents", count(failed.incidents), ", ".join(filter(None, (shared, still))), None
    yield "Messages", count(cost.messages), f"{count(cost.bytes)} bytes forwarded", None
    waited = f"{formatting.noun(failed.waited, 'message')} waited in outages (sum of peaks)"
    yield "Delayed", count(failed.waited), waited, None
    set_aside = Bucket.DEGRADED if cost.quarantined else None
    yield "Quarantined", count(cost.quarantined), "messages to look after", set_aside
    yield "Stopped by max-hops", count(cost.dropped), "messages not sent on to where they had been: no loss", None
    yield from _kept(found)


def _kept(found: Findings) -> Iterator[tuple[str, str, str, Bucket | None]]:
    judged = [objective for objective in found.promises.objectives if objective.links]
    if not judged:
        return
    links, met = sum(one.links for one in judged), sum(one.met for one in judged)
    burning = sum(one.burning for one in judged)
    more = f"{plural(burning, 'link')} at risk now" if burning else "of links with objectives"
    yield "Objectives kept", f"{count(met)} of {count(links)}", more, Bucket.UP if met == links else Bucket.DOWN


def _outages(found: Findings, calendar: Calendar) -> Markup:
    shown = found.failures.troubles[:TOLD]
    if not shown:
        return section("outages", "What happened", nothing("No link failed, and none was blocked, in this period."))
    rest = found.failures.troubles_in_all - len(shown)
    items = [element("li", sentence(trouble, calendar, drawn(found))) for trouble in shown]
    more = element("p", f"{plural(rest, 'lesser cause')} of trouble omitted.", class_="muted") if rest > 0 else None
    note = "What cost most time first; repeats for the same reason are one line."
    return section("outages", "What happened", element("ul", *items, class_="outages"), more, note=note)


def sentence(trouble: Trouble, calendar: Calendar, links: Collection[Which]) -> Markup:
    """`3 Nov 14:02 to 14:31 UTC: 12 links to upstream eu-1 down for 29 min, connection refused.`"""
    when = f"{calendar.span(trouble.span)} {calendar.at(trouble.span.start):%Z}"
    if trouble.open:
        when = f"since {calendar.moment(trouble.span.start)} {calendar.at(trouble.span.start):%Z}, not over"
    if trouble.status == BEHIND:
        said = f" further behind than lag-critical for {_in_all(trouble.seconds, trouble.links)} in all."
        return join(element("b", when), ": ", _who(trouble, links), said)
    return join(
        element("b", when), ": ", _who(trouble, links), f" {trouble.status} {_for_how_long(trouble)}, ",
        element("bdi", formatting.why(trouble.reason, trouble.error)), ".",
    )  # fmt: skip


def _for_how_long(trouble: Trouble) -> str:
    in_all = _in_all(trouble.seconds, trouble.links)
    if trouble.times == 1:
        return f"for {duration(trouble.longest)}" + (f" ({in_all})" if trouble.links > 1 else "")
    return f"{count(trouble.times)} times, for {duration(trouble.longest)} at most and {in_all} in all"


def _in_all(seconds: float, links: int) -> str:
    return f"{formatting.link_hours(seconds)} link-hours" if links > 1 else duration(seconds)


def _who(trouble: Trouble, links: Collection[Which]) -> Markup:
    if trouble.scope is None:
        return formatting.linked(trouble.which, links)
    of = "to upstream" if trouble.scope == "upstream" else "of agent"
    return join(f"{plural(trouble.links, 'link')} {of} ", formatting.name(trouble.name))


def _worst(links: Sequence[LinkTime], timelines: Collection[Which]) -> Markup:
    worse = [link for link in links if _is_worse(link)]
    if not worse:
        return section("worst", "Worst links", nothing("All links were fully available."))
    return section("worst", "Worst links", links_table("Links with the least availability", worse, timelines))


def _is_worse(link: LinkTime) -> bool:
    available = link.spent.availability
    return (available is not None and available < 100.0) or bool(link.lag_critical)


_INCIDENT_HEADS = ("When", "Link", "Down", "Why", "Waited")


def incidents(failures: Failures, calendar: Calendar, drawn: Collection[Which]) -> Markup:
    if not failures.most_severe:
        return section("incidents", "Incidents", nothing("No incidents."))
    rest = failures.incidents - len(failures.most_severe)
    more = f" {plural(rest, 'shorter incident')} omitted; the table `incidents` has them." if rest else ""
    content = table(
        "Incidents",
        _INCIDENT_HEADS,
        (_incident_row(incident, calendar, drawn) for incident in failures.most_severe),
        class_="incidents",
    )
    note = f"Times in which a link was down after a failure; short times up in between don't end an incident.{more}"
    return section("incidents", "Incidents", content, note=note)


def _incident_row(incident: Incident, calendar: Calendar, drawn: Collection[Which]) -> tuple[Child, ...]:
    open_ = element("span", " not over", class_="beside") if incident.open else None
    flaps = f" in {incident.flaps + 1} parts" if incident.flaps else ""
    waited = NOTHING if incident.peak_backlog is None else count(incident.peak_backlog)
    return (
        element("span", calendar.span(incident.span), open_),
        element("span", formatting.linked(incident.which, drawn)),
        f"{duration(incident.down_seconds)}{flaps}",
        element("bdi", formatting.why(incident.reason, incident.error)),
        waited,
    )
