"""The findings in a few numbers, for programs: `summary.json`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from agent.pipeline.findings.model import Findings, Fleet, LinkTime, Objective, Outage, Percentiles, Span, Spent, Which
from agent.pipeline.schema import Bucket
from agent.pipeline.tables.periods import EPOCH

VERSION: Final = 2
"""It increases when a field changes its name or meaning; new fields may be added at any time."""

WORST: Final = 10


def summary(found: Findings, *, run: str | None = None) -> dict[str, Any]:
    """`run` names the version of the output that it belongs to, where there are versions."""
    fleet, failed, cost = found.fleet, found.failures, found.flow.cost
    return {
        "version": VERSION,
        "run": run,
        "window": _span(found.window),
        "timezone": found.zone,
        "lines": dict(found.lines),
        "links": fleet.links,
        **_time(fleet.spent),
        "coverage_percent": fleet.spent.coverage,
        "previous": _previous(fleet, found.window),
        **asdict(cost),
        "account": asdict(found.account),
        "lag_critical": asdict(fleet.lag),
        "incidents": failed.incidents,
        "open_incidents": failed.open,
        "outages": failed.shared,
        "waited_messages": failed.waited,
        "transfer_seconds": _percentiles(found.flow.transfer),
        "lag_messages": _percentiles(found.flow.lag),
        "objectives": [_objective(one) for one in found.promises.objectives],
        "worst_links": [_worst(link) for link in found.worst if _is_worse(link)][:WORST],
        "worst_outages": [_outage(outage) for outage in found.failures.outages],
    }


def _time(spent: Spent) -> dict[str, Any]:
    seconds = {f"{bucket}_seconds": round(spent.of(bucket), 6) for bucket in Bucket}
    return {**seconds, "availability_percent": spent.availability}


def _previous(fleet: Fleet, window: Span) -> dict[str, Any] | None:
    """Of the window of the same length before; None if the tables hold nothing of it."""
    if fleet.previous is None:
        return None
    before = Span(2 * window.start - window.end, window.start)
    return {"window": _span(before), "links": fleet.previous_links, **_time(fleet.previous)}


def _percentiles(percentiles: Percentiles) -> dict[str, float | None]:
    return asdict(percentiles)


def _objective(one: Objective) -> dict[str, Any]:
    return {
        "name": one.name,
        "measured_by": one.measured_by,
        "target_percent": one.target,
        "days": one.days,
        "links": one.links,
        "links_met": one.met,
        "links_burning": one.burning,
        "attained_percent": one.attained,
        "consumed_percent": one.consumed,
        "seen_days": one.seen_days,
        "period_consumed_percent": one.of_period,
    }


def _is_worse(link: LinkTime) -> bool:
    available = link.spent.availability
    return available is not None and available < 100.0


def _worst(link: LinkTime) -> dict[str, Any]:
    return {
        **_which(link.which),
        **_time(link.spent),
        "incidents": link.incidents,
        "lag_critical_seconds": link.lag_critical,
    }


def _outage(outage: Outage) -> dict[str, Any]:
    """An outage that many links share has a scope; otherwise the failed link is named."""
    return {
        "scope": outage.scope,
        "name": outage.name,
        "link": _which(outage.which) if outage.scope is None else None,
        **_span(outage.span),
        "open": outage.open,
        "links": outage.links,
        "down_seconds": outage.down_seconds,
        "reason": outage.reason,
        "error": outage.error,
    }


def _which(which: Which) -> dict[str, Any]:
    return asdict(which)


def _span(span: Span) -> dict[str, str]:
    return {"start": _instant(span.start), "end": _instant(span.end)}


def _instant(moment: int) -> str:
    return (EPOCH + timedelta(microseconds=moment)).isoformat(timespec="microseconds").replace("+00:00", "Z")
