"""Objectives, how much of their budget is used, and how fast it is being used now."""

from __future__ import annotations

from typing import Final

from agent.pipeline.findings.model import BudgetUse, ObjectiveResult, ReportFindings
from agent.pipeline.objectives import ALARMS
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import NOTHING, count, percent, plural
from agent.pipeline.page.markup import Child, Markup, element, join, nothing, section, table

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
