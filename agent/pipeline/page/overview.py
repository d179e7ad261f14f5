"""The overview: availability, its change, effects on messages, and outages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.pipeline.findings.model import Findings, Fleet, LinkTime, Outage, Span
from agent.pipeline.page import words
from agent.pipeline.page.markup import Child, Markup, element, join
from agent.pipeline.page.tables import nothing, section, table
from agent.pipeline.page.words import Calendar, count, duration, percent, plural
from agent.pipeline.schema import Bucket

TOLD = 8
WORST = 10
_SAME = 0.0005
"""In percent: less counts as no change."""


def overview(found: Findings, calendar: Calendar) -> Markup:
    return join(
        element("div", _headline(found), _figures(found), class_="overview"),
        _outages(found, calendar),
        _worst(found.worst[:WORST]),
    )


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
    more = f"and {duration(degraded)} blocked or stalled" if degraded else "over all links"
    yield "Down", duration(down) if down else "0", more, Bucket.DOWN if down else None
    shared = f"{plural(failed.shared, 'outage')} of many links" if failed.shared else ""
    still = f"{failed.open} still open" if failed.open else ""
    yield "Incidents", count(failed.incidents), ", ".join(filter(None, (shared, still))), None
    yield "Messages", count(cost.messages), f"{count(cost.bytes)} bytes forwarded", None
    yield "Delayed", count(failed.waited), "messages that waited in outages (sum of peaks)", None
    lost = cost.dropped + cost.quarantined
    shown = f"{count(cost.dropped)} dropped, {count(cost.quarantined)} quarantined"
    yield "Not delivered", count(lost), shown, Bucket.DEGRADED if lost else None
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
    most_severe = sorted(found.failures.outages, key=lambda outage: -outage.down_seconds)[:TOLD]
    if not most_severe:
        return section("outages", "What happened", nothing("No link failed in this period."))
    shown = sorted(most_severe, key=lambda outage: outage.span.start)
    rest = found.failures.outages_in_all - len(shown)
    items = [element("li", sentence(outage, calendar)) for outage in shown]
    more = element("p", f"{plural(rest, 'lesser outage')} omitted.", class_="muted") if rest else None
    return section("outages", "What happened", element("ul", *items, class_="outages"), more)


def sentence(outage: Outage, calendar: Calendar) -> Markup:
    """`3 Nov 14:02 to 14:31 UTC: 12 links to upstream eu-1 down, connection refused.`"""
    when = f"{calendar.span(outage.span)} {calendar.at(outage.span.start):%Z}"
    if outage.open:
        when = f"since {calendar.moment(outage.span.start)} {calendar.at(outage.span.start):%Z}, not over"
    return join(
        element("b", when), ": ", _who(outage), f" down for {duration(outage.span.seconds)}, ",
        element("bdi", words.why(outage.reason, outage.error)), ".",
    )  # fmt: skip


def _who(outage: Outage) -> Markup:
    if outage.scope is None:
        return words.link(outage.which)
    of = "to upstream" if outage.scope == "upstream" else "of agent"
    return join(f"{plural(outage.links, 'link')} {of} ", words.name(outage.name))


def _worst(links: Sequence[LinkTime]) -> Markup:
    worse = [link for link in links if (link.spent.availability or 100.0) < 100.0 or link.spent.availability == 0.0]
    if not worse:
        return section("worst", "Worst links", nothing("All links were fully available."))
    heads = ("Link", "Availability", "Down", "Degraded", "Unknown", "Incidents")
    return section(
        "worst", "Worst links", table("Links with the least availability", heads, map(_row, worse), class_="numbers")
    )


def _row(link: LinkTime) -> tuple[Child, ...]:
    spent = link.spent
    times = (duration(spent.of(bucket)) for bucket in (Bucket.DOWN, Bucket.DEGRADED, Bucket.UNKNOWN))
    return words.link(link.which), percent(spent.availability), *times, count(link.incidents)
