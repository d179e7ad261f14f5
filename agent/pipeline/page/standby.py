"""The standbys: how long each was in step with its source, when it wasn't for longest and why, and promotions."""

from __future__ import annotations

from typing import Final

from agent.pipeline.findings.model import ReportFindings, StandbyTime
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import NOTHING, Calendar, duration, percent, plural
from agent.pipeline.page.markup import Child, Markup, element, join, section, table

_HEADS: Final = ("Standby", "In step", "Out of step", "Longest time out of step", "Promotions")
_REASON: Final = 200  # letters


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
