"""Queries the findings, and writes them for people and programs: `report.html`, `summary.json` and CSV files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline import files
from agent.pipeline.findings.availability import fleet, groups, heat_of_edges, heat_of_links, strips, worst
from agent.pipeline.findings.failures import failures
from agent.pipeline.findings.model import Findings, Fleet, LinkTime, Objective, Outage, Percentiles, Span, Spent, Which
from agent.pipeline.findings.objectives import promises
from agent.pipeline.findings.report_tables import Asked
from agent.pipeline.findings.traffic import account, edges, flow
from agent.pipeline.page.document import page
from agent.pipeline.schema import LINK, Bucket
from agent.pipeline.spark import TELL, begin_step, in_parallel
from agent.pipeline.window import EPOCH

PAGE: Final = "report.html"
SUMMARY: Final = "summary.json"


def publish(asked: Asked, lines: Mapping[str, int], *, csv: bool, run: str | None) -> dict[str, Any]:
    """Writes both, and returns the summary."""
    spark, output = asked.spark, asked.output
    begin_step(spark, TELL)
    found = gather(asked, lines)
    result = summary(found, run=run)
    if csv:
        write_sheets(asked)
    files.write_text(spark, f"{output}/{PAGE}", page(found))
    files.write_text(spark, f"{output}/{SUMMARY}", json.dumps(result, indent=2) + "\n")
    return result


WORST: Final = 40
SLOTS: Final = 240
OUTAGES_SHOWN: Final = 20
INCIDENTS_SHOWN: Final = 100
EDGES: Final = 24
PROMISES: Final = 25
GROUPS: Final = 40


def gather(asked: Asked, lines: Mapping[str, int]) -> Findings:
    """A bounded number of values, however many links there are and however long the window is."""
    spark, zone, of = asked.spark, str(asked.zone), str(asked.chosen)
    window = Span(asked.within.start, asked.within.end)
    found, compared, links, pairs, failed, flowed, promised, books = in_parallel(
        spark,
        lambda: fleet(asked),
        lambda: groups(asked, most=GROUPS),
        lambda: worst(asked, most=WORST),
        lambda: edges(asked, most=EDGES),
        lambda: failures(asked, outages=OUTAGES_SHOWN, incidents=INCIDENTS_SHOWN),
        lambda: flow(asked),
        lambda: promises(asked, most=PROMISES),
        lambda: account(asked),
    )
    if not found.links:
        return Findings(window, zone, lines, found, of=of)
    drawn, *heat = in_parallel(
        spark,
        lambda: strips(asked, links, slots=SLOTS),
        lambda: heat_of_edges(asked, pairs.busiest),
        lambda: heat_of_links(asked, links),
    )
    return Findings(
        window, zone, lines, found, links, failed, SLOTS, drawn, tuple(heat), flowed, pairs, promised, of, compared,
        books,
    )  # fmt: skip


SUMMARY_VERSION: Final = 2
"""It increases when a field changes its name or meaning; new fields may be added at any time."""

WORST_IN_SUMMARY: Final = 10


def summary(found: Findings, *, run: str | None = None) -> dict[str, Any]:
    """`run` names the version of the output that it belongs to, where there are versions."""
    fleet, failed, cost = found.fleet, found.failures, found.flow.cost
    return {
        "version": SUMMARY_VERSION,
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
        "worst_links": [_worst_link(link) for link in found.worst if _is_worse(link)][:WORST_IN_SUMMARY],
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


def _worst_link(link: LinkTime) -> dict[str, Any]:
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


AVAILABILITY_CSV: Final = "availability.csv"
INCIDENTS_CSV: Final = "incidents.csv"
_A_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_ROWS: Final = 5_000


def write_sheets(asked: Asked) -> None:
    days = asked.availability("day").drop("period").orderBy("date", *LINK)
    _write_csv(asked, AVAILABILITY_CSV, days)
    _write_csv(asked, INCIDENTS_CSV, asked.incidents().orderBy("start", *LINK))


def _write_csv(asked: Asked, name: str, rows: DataFrame) -> None:
    """Times are RFC 3339 in UTC, as in the tables."""
    shown = rows.select(*(_shown(field, kind) for field, kind in rows.dtypes))
    files.write_parts(asked.spark, f"{asked.output}/{name}", _lines(shown))


def _shown(name: str, kind: str) -> Column:
    if kind == "timestamp":
        return fn.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias(name)
    return fn.col(f"`{name}`").cast("string").alias(name)


def _lines(rows: DataFrame) -> Iterator[str]:
    """A part at a time, however many rows there are."""
    part = io.StringIO()
    writer = csv.writer(part)
    writer.writerow(rows.columns)
    for number, row in enumerate(rows.toLocalIterator(), 1):
        writer.writerow(_harmless(value) for value in row)
        if number % _ROWS == 0:
            yield part.getvalue()
            part.seek(0)
            part.truncate()
    yield part.getvalue()


def _harmless(value: str | None) -> str | None:
    """Names come from outside, and a spreadsheet would run one that begins like a formula."""
    return f"'{value}" if value and value.startswith(_A_FORMULA) else value
