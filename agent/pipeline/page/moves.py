"""The moves: what came from which cluster, when, what is left, and the account. And the standbys: how long each was in
step with its source, when it wasn't for longest and why, and promotions."""

from __future__ import annotations

from typing import Final

from agent.pipeline.findings.model import ClusterMove, ReportFindings, StandbyTime
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import NOTHING, Calendar, duration, exact, percent, plural
from agent.pipeline.page.markup import Child, Markup, element, join, section, table

_MOVE_HEADS: Final = ("Move", "Queues", "Arrived", "When", "At the last look", "Account")
_HEADS: Final = ("Standby", "In step", "Out of step", "Longest time out of step", "Promotions")
_REASON: Final = 200  # letters


def moves(findings: ReportFindings, calendar: Calendar) -> Markup | None:
    """None where nothing moved."""
    if not findings.moves:
        return None
    note = "Times are to five minutes. Only migrate status says when nothing more can come, and the old cluster can go."
    rows = (_move(one, calendar) for one in findings.moves)
    return section("moves", "Moves", table("Moves", _MOVE_HEADS, rows, class_="moves"), note=note)


def _move(one: ClusterMove, calendar: Calendar) -> tuple[Child, ...]:
    named = element("span", formatting.name(one.source), " to ", formatting.name(one.target))
    when = NOTHING if one.when is None else calendar.span(one.when)
    return named, exact(one.queues), element("b", exact(one.moved)), when, _left(one, calendar), _account(one)


def _left(one: ClusterMove, calendar: Calendar) -> Child:
    if one.looked_until is None:
        return "not known"
    said: list[Child] = [
        f"{exact(one.left)} left in {plural(one.left_queues, 'queue')}" if one.left else "nothing left"
    ]
    for vhost, queue, left in one.most_left:
        said += [", ", formatting.name(queue), " in ", formatting.name(vhost), f": {exact(left)}"]
    if one.unknown_queues:
        said.append(f", not known of {plural(one.unknown_queues, 'queue')}")
    return element("span", *said, f", {calendar.date_and_time(one.looked_until)}")


def _account(one: ClusterMove) -> str:
    """All that was taken, and what became of it but arriving."""
    parts = {
        "given back": one.given_back,
        "quarantined": one.quarantined,
        "dropped": one.dropped,
        "in doubt": one.in_doubt,
        "not accounted for": one.unexplained,
    }
    said = [f"{exact(one.taken)} taken", *(f"{exact(number)} {name}" for name, number in parts.items() if number)]
    if one.not_accounted_queues:
        said.append(f"no account of {plural(one.not_accounted_queues, 'queue')}")
    return ", ".join(said)


def standbys(findings: ReportFindings, calendar: Calendar) -> Markup | None:
    """None where no agent reported one."""
    if not findings.standbys:
        return None
    note = "Of the time in which the cluster was a standby, and an agent reported how it stood."
    rows = (_row(one, calendar) for one in findings.standbys)
    return section("standby", "Standby", table("Standbys", _HEADS, rows, class_="standbys"), note=note)


def _row(one: StandbyTime, calendar: Calendar) -> tuple[Child, ...]:
    named = element("span", formatting.name(one.group), " of ", formatting.name(one.upstream))
    out = duration(one.not_in_step) if one.not_in_step else NOTHING
    return named, element("b", percent(one.in_step_percent)), out, _longest(one, calendar), _promotions(one, calendar)


def _longest(one: StandbyTime, calendar: Calendar) -> Child:
    if one.longest is None:
        return NOTHING
    why = join(": ", formatting.name(one.error, _REASON)) if one.error else None
    return element("span", f"{duration(one.longest.seconds)}, {calendar.span(one.longest)}", why)


def _promotions(one: StandbyTime, calendar: Calendar) -> Child:
    if not one.promotion_count:
        return NOTHING
    times = ", ".join(calendar.date_and_time(at) for at in one.promotions)
    more = one.promotion_count - len(one.promotions)
    return f"{times}, and {plural(more, 'earlier one')}" if more else times
