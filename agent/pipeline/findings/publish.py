"""Queries the findings, and writes them for people and programs: `report.html`, `summary.json` and CSV files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline import files
from agent.pipeline.findings import failures, time_spent, traffic
from agent.pipeline.findings.model import ClusterMove, Disruption, LinkTime, ReportFindings, StandbyTime, TimeSpent
from agent.pipeline.findings.report_tables import ReportTables
from agent.pipeline.page.document import page
from agent.pipeline.schema import LINK, Bucket
from agent.pipeline.spark import PUBLISH, begin_step, in_parallel
from agent.pipeline.window import Bounds, instant

PAGE: Final = "report.html"
SUMMARY: Final = "summary.json"
AVAILABILITY_CSV: Final = "availability.csv"
INCIDENTS_CSV: Final = "incidents.csv"
SUMMARY_VERSION: Final = 2
"""It increases when a field changes its name or meaning; new fields may be added at any time."""

# How many the page shows at most.
LINKS_SHOWN: Final = 40
SLOTS: Final = 240
OUTAGES_SHOWN: Final = 20
INCIDENTS_SHOWN: Final = 100
EDGES_SHOWN: Final = 24
BUDGETS_SHOWN: Final = 25
GROUPS_SHOWN: Final = 40
LINKS_IN_SUMMARY: Final = 10

_CSV_ROWS: Final = 5_000
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def publish(tables: ReportTables, lines: Mapping[str, int], *, with_csv: bool, run: str | None) -> dict[str, Any]:
    """Writes page, summary and, if wanted, CSV files; returns the summary."""
    spark, output = tables.spark, tables.output
    begin_step(spark, PUBLISH)
    findings = gather(tables, lines)
    result = summary(findings, run=run)
    if with_csv:
        _write_csv(tables, AVAILABILITY_CSV, tables.availability("day").drop("period").orderBy("date", *LINK))
        _write_csv(tables, INCIDENTS_CSV, tables.incidents().orderBy("start", *LINK))
    files.write_text(spark, f"{output}/{PAGE}", page(findings))
    files.write_text(spark, f"{output}/{SUMMARY}", json.dumps(result, indent=2) + "\n")
    return result


def gather(tables: ReportTables, lines: Mapping[str, int]) -> ReportFindings:
    """A bounded number of values, however many links there are and however long the window is."""
    spark, zone, link_filter = tables.spark, str(tables.zone), str(tables.link_filter)
    whole, by_group, links, pairs, failed, flow, (judged, budgets), totals, stood, moved = in_parallel(
        spark,
        lambda: time_spent.fleet(tables),
        lambda: time_spent.groups(tables, most=GROUPS_SHOWN),
        lambda: time_spent.worst_links(tables, most=LINKS_SHOWN),
        lambda: traffic.edges(tables, most=EDGES_SHOWN),
        lambda: failures.failures(tables, outages=OUTAGES_SHOWN, incidents=INCIDENTS_SHOWN),
        lambda: traffic.traffic(tables),
        lambda: (time_spent.objectives(tables), time_spent.worst_budgets(tables, most=BUDGETS_SHOWN)),
        lambda: traffic.account(tables),
        lambda: time_spent.standbys(tables, most=GROUPS_SHOWN),
        lambda: traffic.moves(tables, most=GROUPS_SHOWN),
    )
    if not whole.links:
        return ReportFindings(tables.within, zone, lines, whole, link_filter=link_filter)
    drawn, *heat_maps = in_parallel(
        spark,
        lambda: time_spent.timelines(tables, links, slots=SLOTS),
        lambda: time_spent.heat_map_of_edges(tables, pairs.busiest),
        lambda: time_spent.heat_map_of_links(tables, links),
    )
    return ReportFindings(
        tables.within, zone, lines, whole, links, failed, SLOTS, drawn, tuple(heat_maps), flow, pairs, judged,
        budgets, link_filter, by_group, totals, stood, moved,
    )  # fmt: skip


def summary(findings: ReportFindings, *, run: str | None = None) -> dict[str, Any]:
    """The findings in a few numbers. `run` names the version of the output they belong to, where there are versions."""
    fleet, failed, window = findings.fleet, findings.failures, findings.window
    previous = None
    if fleet.previous is not None:
        before = Bounds(2 * window.start - window.end, window.start)
        previous = {"window": _bounds(before), "links": fleet.previous_links, **_time(fleet.previous)}
    return {
        "version": SUMMARY_VERSION,
        "run": run,
        "window": _bounds(window),
        "timezone": findings.zone,
        "lines": dict(findings.lines),
        "links": fleet.links,
        **_time(fleet.spent),
        "coverage_percent": fleet.spent.coverage,
        "previous": previous,
        **asdict(findings.traffic.counts),
        "account": asdict(findings.account),
        "lag_critical": asdict(fleet.lag),
        "incidents": failed.incidents,
        "open_incidents": failed.open,
        "outages": failed.shared,
        "waited_messages": failed.waited,
        "transfer_seconds": asdict(findings.traffic.transfer),
        "lag_messages": asdict(findings.traffic.lag),
        "objectives": [asdict(one) for one in findings.objectives],
        "worst_links": [_link(link) for link in findings.worst if link.spent.was_unavailable][:LINKS_IN_SUMMARY],
        "worst_outages": [_outage(outage) for outage in failed.outages],
        "standbys": [_standby(one) for one in findings.standbys],
        "moves": [_move(one) for one in findings.moves],
    }


def _time(spent: TimeSpent) -> dict[str, Any]:
    seconds = {f"{bucket}_seconds": round(spent.of(bucket), 6) for bucket in Bucket}
    return {**seconds, "availability_percent": spent.availability}


def _link(link: LinkTime) -> dict[str, Any]:
    counts = {"incidents": link.incidents, "lag_critical_seconds": link.lag_critical}
    return {**asdict(link.identity), **_time(link.spent), **counts}


def _outage(outage: Disruption) -> dict[str, Any]:
    """An outage that many links share has a scope; otherwise the failed link is named."""
    return {
        "scope": outage.scope,
        "name": outage.name,
        "link": asdict(outage.identity) if outage.scope is None else None,
        **_bounds(outage.span),
        "open": outage.open,
        "links": outage.links,
        "down_seconds": outage.seconds,
        "reason": outage.reason,
        "error": outage.error,
        "failure": outage.failure,
    }


def _standby(one: StandbyTime) -> dict[str, Any]:
    longest = None if one.longest is None else {**_bounds(one.longest), "error": one.error}
    return {
        "group": one.group,
        "upstream": one.upstream,
        "in_step_percent": one.in_step_percent,
        "in_step_seconds": one.in_step,
        "not_in_step_seconds": one.not_in_step,
        "promoted_seconds": one.promoted,
        "longest_not_in_step": longest,
        "promotions": one.promotion_count,
    }


def _move(one: ClusterMove) -> dict[str, Any]:
    most_left = [{"vhost": vhost, "queue": queue, "left": left} for vhost, queue, left in one.most_left]
    looked = None if one.looked_until is None else _time_text(one.looked_until)
    when = None if one.when is None else _bounds(one.when)
    return {**asdict(one), "when": when, "looked_until": looked, "most_left": most_left}


def _bounds(span: Bounds) -> dict[str, str]:
    return {"start": _time_text(span.start), "end": _time_text(span.end)}


def _time_text(at: int) -> str:
    return instant(at).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _write_csv(tables: ReportTables, name: str, rows: DataFrame) -> None:
    """Times are RFC 3339 in UTC, as in the tables."""
    shown = rows.select(*(_text_column(field, kind) for field, kind in rows.dtypes))
    files.write_parts(tables.spark, f"{tables.output}/{name}", _csv_parts(shown))


def _text_column(name: str, kind: str) -> Column:
    if kind == "timestamp":
        return fn.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias(name)
    if kind.startswith("struct"):
        return fn.to_json(name, {"ignoreNullFields": "false"}).alias(name)
    return fn.col(f"`{name}`").cast("string").alias(name)


def _csv_parts(rows: DataFrame) -> Iterator[str]:
    """A part at a time, however many rows there are."""
    part = io.StringIO()
    writer = csv.writer(part)
    writer.writerow(rows.columns)
    for number, row in enumerate(rows.toLocalIterator(), 1):
        writer.writerow(_without_formula(value) for value in row)
        if number % _CSV_ROWS == 0:
            yield part.getvalue()
            part.seek(0)
            part.truncate()
    yield part.getvalue()


def _without_formula(value: str | None) -> str | None:
    """The value for a CSV file. Names come from outside, and a spreadsheet would run one that begins like a formula, so
    such a value gets an apostrophe in front."""
    return f"'{value}" if value and value.startswith(_FORMULA_STARTS) else value
