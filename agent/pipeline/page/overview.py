"""The overview: availability and its change, objectives and what is used of their budgets, effects on messages, what
happened, and the worst links.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.pipeline.findings import model
from agent.pipeline.findings.model import BudgetUse, Disruption, ObjectiveResult, ReportFindings
from agent.pipeline.objectives import ALARMS
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import NOTHING, Calendar, count, duration, percent, plural
from agent.pipeline.page.links import groups, links_table
from agent.pipeline.page.markup import Child, Markup, element, join, nothing, section, table
from agent.pipeline.schema import EXPECTED, Bucket
from agent.pipeline.window import Bounds

DISRUPTIONS_SHOWN = 8
LINKS_SHOWN = 10
_SAME = 0.0005
"""In percent: less counts as no change."""


def overview(findings: ReportFindings, calendar: Calendar) -> Markup:
    verdicts = _verdict(findings), _accounted(findings.account), _lagging(findings.fleet.lag)
    figures = element("dl", *_figures(findings), class_="figures")
    return join(
        element("div", *verdicts, _headline(findings), figures, class_="overview"),
        _outages(findings, calendar),
        groups(findings) if len(findings.groups) > 1 else None,
        _worst(findings),
    )


def _verdict(findings: ReportFindings) -> Markup | None:
    """The answer for those who read no further: if the objective was met, and if it was better before."""
    judged = [one for one in findings.objectives if one.measured_by == "time" and one.attained_percent is not None]
    if not judged:
        return None
    one = min(judged, key=lambda one: (one.attained_percent or 0.0) - one.target_percent)
    attained, before = one.attained_percent or 0.0, _before(findings.fleet)
    verdict = "met" if attained >= one.target_percent else "missed"
    links = f"{count(one.links_met)} of {plural(one.links, 'link')} met it" if one.links > 1 else ""
    text = f"Objective of {one.target_percent:g}{formatting.HARD}% {verdict} with {percent(attained)}"
    parts = "; ".join(filter(None, (text, links, before)))
    return element("p", f"{parts}.", class_="verdict", data_bucket=Bucket.UP if verdict == "met" else Bucket.DOWN)


def _accounted(account: model.MessageAccount) -> Markup | None:
    """`2.17 G messages taken, all accounted for but 12 on 2 links.`"""
    older = plural(account.not_accounted_links, "link")
    if not account.taken:
        if not account.not_accounted_links:
            return None
        return element("p", f"Not accounted for: agents of {older} don't count what they take.", class_="muted")
    text = f"{count(account.taken)} {formatting.noun(account.taken, 'message')} taken, all accounted for"
    if account.unexplained:
        text += f" but {count(account.unexplained)} on {plural(account.unexplained_links, 'link')}"
    if account.not_accounted_links:
        text += f"; {older} not accounted for, or not all the time"
    unexplained = account.unexplained or account.unexplained_upstream
    more = _entered(account) if account.upstream_links else ""
    return element("p", f"{text}.{more}", class_="verdict", data_bucket=Bucket.DEGRADED if unexplained else Bucket.UP)


def _entered(account: model.MessageAccount) -> str:
    """` Upstream, 2.2 G messages entered the queues of 3 links: 30 expired or were removed, …`"""
    entered = f"{count(account.entered)} {formatting.noun(account.entered, 'message')}"
    text = f" Upstream, {entered} entered the queues of {plural(account.upstream_links, 'link')}"
    more = [f"{count(account.expired)} expired or were removed"] if account.expired else []
    more += [f"{count(account.repeated)} were forwarded twice"] if account.repeated else []
    if account.unexplained_upstream:
        on = plural(account.unexplained_upstream_links, "link")
        more.append(f"{count(account.unexplained_upstream)} on {on} are not accounted for")
    else:
        more.append("all accounted for")
    return f"{text}: {', '.join(more)}."


def _lagging(lag: model.LagTime) -> Markup | None:
    """`2 of 14 links with lag-critical were further behind, 1.2 link-hours in all.`"""
    if lag.seconds is None:
        return None
    links = f"{count(lag.links) if lag.links else 'None'} of {plural(lag.known_links, 'link')} with lag-critical"
    were = "was" if lag.links <= 1 else "were"
    more = f", {_in_all(lag.seconds, lag.links)} in all" if lag.links else ""
    bucket = Bucket.DEGRADED if lag.links else Bucket.UP
    return element("p", f"{links} {were} further behind{more}.", class_="verdict", data_bucket=bucket)


def _before(fleet: model.Fleet) -> str:
    now, before = fleet.spent.availability, fleet.previous.availability if fleet.previous else None
    if now is None or before is None:
        return "the period before is not known"
    change = now - before
    return f"{'as' if abs(change) < _SAME else 'better than' if change > 0 else 'worse than'} in the period before"


def _headline(findings: ReportFindings) -> Markup:
    fleet = findings.fleet
    availability = fleet.spent.availability
    known = f"{percent(fleet.spent.coverage)} of the time is known; the rest doesn't count."
    return element(
        "div",
        element("p", percent(availability) if availability is not None else "No data", class_="headline"),
        element("p", f"availability of {plural(fleet.links, 'link')}, all together"),
        _trend(fleet, findings.window),
        element("p", known, class_="muted") if fleet.links else None,
        class_="lead",
    )


def _trend(fleet: model.Fleet, window: Bounds) -> Markup:
    now, before = fleet.spent.availability, fleet.previous.availability if fleet.previous else None
    length = duration(window.seconds)
    if now is None or before is None:
        return element("p", f"No data for the {length} before, so there is no comparison.", class_="trend")
    change, held = now - before, _held(fleet, window)
    if abs(change) < _SAME:
        return element("p", f"As in the {length} before ({percent(before)}).{held}", class_="trend")
    better = change > 0
    than = f"{'better' if better else 'worse'} than in the {length} before ({percent(before)})"
    text = f"{abs(change):.2g} points {than}.{held}"
    return element(
        "p", element("span", "▲ " if better else "▼ ", aria_hidden="true"), text,
        class_="trend", data_bucket=Bucket.UP if better else Bucket.DOWN,
    )  # fmt: skip


def _held(fleet: model.Fleet, window: Bounds) -> str:
    """The share of the period before that the tables hold; empty if they have all of it."""
    before = fleet.previous.of(*Bucket) if fleet.previous else 0.0
    share = before / (fleet.previous_links * window.seconds) if fleet.previous_links else 0.0
    return "" if share > 0.99 else f" The tables hold {100 * share:.0f} % of it."


def _figure(title: str, value: str, more: str, bucket: Bucket | None = None) -> Markup:
    """A number, what it is, and the bucket whose colour it has."""
    shown = element("dd", more, class_="more") if more else None
    return element("div", element("dt", title), element("dd", value, class_="figure"), shown, data_bucket=bucket)


def _figures(findings: ReportFindings) -> Iterator[Markup]:
    spent, failed, counts = findings.fleet.spent, findings.failures, findings.traffic.counts
    down, degraded = spent.of(Bucket.DOWN), spent.of(Bucket.DEGRADED)
    for title, seconds, bucket in (("Down", down, Bucket.DOWN), ("Degraded", degraded, Bucket.DEGRADED)):
        more = f"link-hours, {formatting.share(seconds, spent.of(*EXPECTED))} of the time"
        yield _figure(title, formatting.link_hours(seconds), more, bucket if seconds else None)
    if (behind := findings.fleet.lag.seconds) is not None:
        more = "link-hours further behind than lag-critical"
        yield _figure("Lag critical", formatting.link_hours(behind), more, Bucket.DEGRADED if behind else None)
    shared = f"{plural(failed.shared, 'outage')} of many links" if failed.shared else ""
    still = f"{failed.open} still open" if failed.open else ""
    yield _figure("Incidents", count(failed.incidents), ", ".join(filter(None, (shared, still))))
    yield _figure("Messages", count(counts.messages), f"{count(counts.bytes)} bytes forwarded")
    waited = f"{formatting.noun(failed.waited, 'message')} waited in outages (sum of peaks)"
    yield _figure("Delayed", count(failed.waited), waited)
    quarantined = Bucket.DEGRADED if counts.quarantined else None
    yield _figure("Quarantined", count(counts.quarantined), "messages to look after", quarantined)
    yield _figure("Stopped by max-hops", count(counts.dropped), "messages not sent on to where they had been: no loss")
    if judged := [objective for objective in findings.objectives if objective.links]:
        links, met = sum(one.links for one in judged), sum(one.links_met for one in judged)
        burning = sum(one.links_burning for one in judged)
        more = f"{plural(burning, 'link')} at risk now" if burning else "of links with objectives"
        kept = Bucket.UP if met == links else Bucket.DOWN
        yield _figure("Objectives kept", f"{count(met)} of {count(links)}", more, kept)


def _outages(findings: ReportFindings, calendar: Calendar) -> Markup:
    shown = findings.failures.disruptions[:DISRUPTIONS_SHOWN]
    if not shown:
        return section("outages", "What happened", nothing("No link failed, and none was blocked, in this period."))
    rest = findings.failures.disruption_count - len(shown)
    items = [element("li", _sentence(disruption, calendar, findings)) for disruption in shown]
    more = element("p", f"{plural(rest, 'lesser cause')} of trouble omitted.", class_="muted") if rest > 0 else None
    note = "What cost most time first; repeats for the same reason are one line."
    return section("outages", "What happened", element("ul", *items, class_="outages"), more, note=note)


def _sentence(disruption: Disruption, calendar: Calendar, findings: ReportFindings) -> Markup:
    """`3 Nov 14:02 to 14:31 UTC: 12 links to upstream eu-1 down for 29 min, connection refused.`"""
    when = f"{calendar.span(disruption.span)} {calendar.at(disruption.span.start):%Z}"
    if disruption.open:
        when = f"since {calendar.day_and_time(disruption.span.start)} {calendar.at(disruption.span.start):%Z}, not over"
    if disruption.status == model.BEHIND:
        text = f" further behind than lag-critical for {_in_all(disruption.seconds, disruption.links)} in all."
        return join(element("b", when), ": ", _who(disruption, findings), text)
    how_long, cause = _for_how_long(disruption), formatting.why(disruption.reason, disruption.error)
    text = f" {disruption.status} {how_long}, "
    return join(element("b", when), ": ", _who(disruption, findings), text, element("bdi", cause), ".")


def _for_how_long(disruption: Disruption) -> str:
    in_all = _in_all(disruption.seconds, disruption.links)
    if disruption.times == 1:
        return f"for {duration(disruption.longest)}" + (f" ({in_all})" if disruption.links > 1 else "")
    return f"{count(disruption.times)} times, for {duration(disruption.longest)} at most and {in_all} in all"


def _in_all(seconds: float, links: int) -> str:
    return f"{formatting.link_hours(seconds)} link-hours" if links > 1 else duration(seconds)


def _who(disruption: Disruption, findings: ReportFindings) -> Markup:
    if disruption.scope is None:
        return formatting.linked(disruption.identity, findings)
    of = "to upstream" if disruption.scope == "upstream" else "of agent"
    return join(f"{plural(disruption.links, 'link')} {of} ", formatting.name(disruption.name))


def _worst(findings: ReportFindings) -> Markup:
    worse = [link for link in findings.worst[:LINKS_SHOWN] if link.spent.was_unavailable or link.lag_critical]
    if not worse:
        return section("worst", "Worst links", nothing("All links were fully available."))
    shown = links_table("Links with the least availability", worse, findings)
    return section("worst", "Worst links", shown)


def incidents(findings: ReportFindings, calendar: Calendar) -> Markup:
    shown = findings.failures.most_severe
    if not shown:
        return section("incidents", "Incidents", nothing("No incidents."))
    rest = findings.failures.incidents - len(shown)
    more = f" {plural(rest, 'shorter incident')} omitted; the table `incidents` has them." if rest else ""
    rows = (_incident_row(incident, calendar, findings) for incident in shown)
    content = table("Incidents", ("When", "Link", "Down", "Why", "Waited"), rows, class_="incidents")
    note = f"Times in which a link was down after a failure; short times up in between don't end an incident.{more}"
    return section("incidents", "Incidents", content, note=note)


def _incident_row(incident: model.Incident, calendar: Calendar, findings: ReportFindings) -> tuple[Child, ...]:
    open_ = element("span", " not over", class_="beside") if incident.open else None
    flaps = f" in {incident.flaps + 1} parts" if incident.flaps else ""
    waited = NOTHING if incident.peak_backlog is None else count(incident.peak_backlog)
    return (
        element("span", calendar.span(incident.span), open_),
        element("span", formatting.linked(incident.identity, findings)),
        f"{duration(incident.down_seconds)}{flaps}",
        element("bdi", formatting.why(incident.reason, incident.error)),
        waited,
    )


_ALL: Final = ("Objective", "Links that meet it", "All together", "Budget used", "At risk now")
_MOST: Final = "Links that used most of their budget"
_EACH: Final = ("Link", "Objective", "Attained", "Budget used", "Burn 1 h / 5 min", "6 h / 30 min", "3 d / 6 h")


def objectives(findings: ReportFindings) -> Markup:
    if not any(one.links for one in findings.objectives):
        return section("objectives", "Objectives", nothing("No data to evaluate objectives."))
    rows = (_budget_row(one, findings) for one in findings.budgets)
    each = join(element("h3", _MOST), table(_MOST, _EACH, rows)) if findings.budgets else None
    note = (
        "Looking back from the end of the window, at most to its start; whether a link meets an objective is judged by "
        "the days seen. A burn rate of 1 uses the budget up exactly "
        "by the end; a pair in bold is above its alert threshold."
    )
    return section(
        "objectives",
        "Objectives",
        table("Objectives", _ALL, map(_result_row, findings.objectives)),
        each or nothing("No link has used any of its budget."),
        note=note,
    )


def _result_row(one: ObjectiveResult) -> tuple[Child, ...]:
    promise = "of the time up" if one.measured_by == "time" else "of messages in time"
    text = element("span", formatting.name(one.name), f" ({one.target_percent:g} % {promise}, {_days(one)})")
    kept = element("b", f"{count(one.links_met)} of {count(one.links)}")
    return text, kept, percent(one.attained_percent), _budget(one), count(one.links_burning)


def _days(one: ObjectiveResult) -> str:
    if one.seen_days >= one.days:
        return plural(one.days, "day")
    return f"{formatting.days(one.seen_days)} of {plural(one.days, 'day')} seen"


def _budget(one: ObjectiveResult) -> Markup:
    """After a few hours of a month, the share of those hours' budget alone says nothing about the month."""
    if one.seen_days >= one.days or one.period_consumed_percent is None:
        return _used(one.consumed_percent)
    return element("span", _used(one.period_consumed_percent), f" of {plural(one.days, 'day')}")


def _budget_row(one: BudgetUse, findings: ReportFindings) -> tuple[Child, ...]:
    pairs = (_burn(one.burns.get(long), one.burns.get(short), alarm) for long, short, alarm in ALARMS)
    target = element("span", formatting.name(one.objective), f" ({one.target:g} %)")
    return formatting.linked(one.identity, findings), target, percent(one.attained), _used(one.consumed), *pairs


def _used(consumed: float | None) -> Markup:
    if consumed is None:
        return element("span", NOTHING)
    over = consumed > 100
    return element("span", f"{count(consumed)} %", " missed" if over else None, data_bucket="down" if over else None)


def _burn(long: float | None, short: float | None, alarm: float) -> Markup:
    rates = " / ".join(NOTHING if value is None else formatting.rate(value) for value in (long, short))
    return element("b" if (long or 0) > alarm and (short or 0) > alarm else "span", rates)
