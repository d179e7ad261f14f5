"""Incidents, the outages that they form, and other disruptions: all are counted, the most severe are listed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.model import BEHIND, Disruption, Failures, Incident
from agent.pipeline.findings.report_tables import (
    IDENTITY,
    LONGEST,
    ReportTables,
    identity_aggregates,
    identity_columns,
    identity_of,
    shortened,
)
from agent.pipeline.schema import FAILURE_FIELDS, LINK, SECOND, Bucket
from agent.pipeline.window import Bounds


def failures(tables: ReportTables, *, outages: int, incidents: int) -> Failures:
    columns = {
        "begin": fn.unix_micros("start"),
        "until": fn.unix_micros("end"),
        "error": shortened("error"),
        # An incident that no other link shares is its own outage.
        "of": fn.coalesce("outage", fn.concat_ws("/", *LINK, fn.unix_micros("start"))),
    }
    rows = _explained(tables.incidents().withColumns(columns))
    counts = rows.agg(
        fn.count("of").alias("incidents"),
        fn.count_if("open").alias("open"),
        fn.count_distinct("outage").alias("shared"),
        fn.coalesce(fn.sum("peak_backlog"), fn.lit(0)).alias("waited"),
    ).collect()[0]
    by_outage = _by_outage(rows)
    repeated, degraded = _repeated(by_outage), _by_origin(_degraded(tables).unionByName(_behind(tables)))
    disruption_count = repeated.count() + degraded.count()
    costliest = [*_costliest(repeated, *LINK, most=outages), *_costliest(degraded, *LINK, most=outages)]
    costliest.sort(key=lambda one: (-one.seconds, one.span.start))
    return Failures(
        counts["incidents"], counts["open"], counts["shared"], counts["waited"],
        tuple(sorted(_costliest(by_outage, "of", most=outages), key=lambda one: one.span.start)),
        _most_severe(rows, most=incidents), disruption_count, tuple(costliest[:outages]),
    )  # fmt: skip


def _explained(rows: DataFrame) -> DataFrame:
    """With error and facts in one column, null without either: `mode` counts a struct right only if it is a column."""
    failure = fn.col("failure")
    fields = (fn.substring(failure[name], 1, LONGEST).alias(name) for name in FAILURE_FIELDS)
    shown = fn.when(failure.isNotNull(), fn.struct(*fields)).alias("failure")
    is_known = fn.coalesce("error", failure["kind"]).isNotNull()
    return rows.withColumn("explained", fn.when(is_known, fn.struct("error", shown)))


def _first_link() -> list[Column]:
    return [*(fn.first(name).alias(name) for name in LINK), *identity_aggregates()]


def _whole_span() -> list[Column]:
    return [fn.min("begin").alias("begin"), fn.max("until").alias("until"), fn.max("open").alias("open")]


def _by_outage(rows: DataFrame) -> DataFrame:
    """The incidents of each outage, with the error that most of those with one have, and the facts of the same."""
    explained = fn.mode("explained", True)
    return rows.groupBy("of").agg(
        *_first_link(),
        fn.lit("down").alias("status"),
        fn.first("outage_scope").alias("scope"),
        fn.first(fn.substring("outage_name", 1, LONGEST)).alias("disruption_name"),
        *_whole_span(),
        fn.count_distinct(*LINK).alias("links"),
        fn.lit(1).alias("times"),
        fn.sum("down_seconds").alias("seconds"),
        (fn.max("until") - fn.min("begin")).alias("longest"),
        fn.mode("reason", True).alias("reason"),
        explained["error"].alias("error"),
        explained["failure"].alias("failure"),
    )


def _repeated(by_outage: DataFrame) -> DataFrame:
    """Outages of the same links for the same reason, which are one line however often they came back."""
    of = fn.when(fn.col("scope").isNull(), fn.concat_ws("/", *LINK)).otherwise(fn.col("disruption_name"))
    kind = fn.col("failure")["kind"].alias("failure_kind")
    return by_outage.withColumn("same", of).groupBy("scope", "same", "reason", kind, "status").agg(
        *_first_link(),
        fn.first("disruption_name").alias("disruption_name"),
        *_whole_span(),
        fn.max("links").alias("links"),
        fn.sum("times").alias("times"),
        fn.sum("seconds").alias("seconds"),
        fn.max("longest").alias("longest"),
        fn.mode("error", True).alias("error"),
    )  # fmt: skip


def _degraded(tables: ReportTables) -> DataFrame:
    """Links that were blocked or stalled."""
    start = fn.unix_micros("start")
    inside = (start >= tables.within.start) & (start < tables.within.end)
    lasted = (fn.unix_micros("end") - start).alias("lasted")
    spans = tables.intervals().where((fn.col("bucket") == Bucket.DEGRADED) & inside).select(
        *IDENTITY, "status", "reason", "error", lasted,
        start.alias("begin"), fn.unix_micros("end").alias("until"),
    )  # fmt: skip
    return spans.withColumn("origin", _origin()).groupBy("origin", "status", *LINK).agg(
        *identity_aggregates(),
        fn.mode("reason", True).alias("reason"),
        fn.mode("error", True).alias("error"),
        fn.min("begin").alias("begin"),
        fn.max("until").alias("until"),
        (fn.max("until") >= tables.within.end).alias("open"),
        fn.count("lasted").alias("times"),
        fn.sum("lasted").alias("lasted"),
        fn.max("lasted").alias("longest"),
    )  # fmt: skip


def _behind(tables: ReportTables) -> DataFrame:
    """Links whose lag was critical. The table has sums by hour: when it began within an hour, how often it was so, and
    if it still is at the end isn't known."""
    hours = tables.availability("hour").where("lag_critical_seconds > 0")
    lasted = (fn.sum("lag_critical_seconds") * SECOND).cast("bigint")
    return hours.withColumn("origin", _origin()).groupBy("origin", fn.lit(BEHIND).alias("status"), *LINK).agg(
        *identity_aggregates(),
        fn.lit(None).cast("string").alias("reason"),
        fn.lit(None).cast("string").alias("error"),
        fn.min(fn.unix_micros("start")).alias("begin"),
        fn.max(fn.unix_micros("end")).alias("until"),
        fn.lit(False).alias("open"),
        fn.lit(1).cast("bigint").alias("times"),
        lasted.alias("lasted"),
        lasted.alias("longest"),
    )  # fmt: skip


def _origin() -> Column:
    return fn.substring(fn.coalesce("upstream_cluster", "upstream"), 1, LONGEST)


def _by_origin(by_link: DataFrame) -> DataFrame:
    """Links of one upstream are one disruption; `times` is how often the one with most of them had it."""
    many = fn.count("link") > 1
    return by_link.groupBy("origin", "status").agg(
        *_first_link(),
        fn.when(many, fn.lit("upstream")).alias("scope"),
        fn.when(many, fn.first("origin")).alias("disruption_name"),
        *_whole_span(),
        fn.count("link").alias("links"),
        fn.max("times").alias("times"),
        (fn.sum("lasted") / SECOND).alias("seconds"),
        fn.max("longest").alias("longest"),
        fn.mode("reason", True).alias("reason"),
        fn.mode("error", True).alias("error"),
    )


def _costliest(found: DataFrame, *ties: str, most: int) -> list[Disruption]:
    """Those of single outages have the facts of their failure."""
    has_facts = "failure" in found.columns
    return [
        Disruption(
            row["status"], row["scope"], row["disruption_name"], identity_of(row), Bounds(row["begin"], row["until"]),
            row["open"], row["links"], row["times"], float(row["seconds"]), row["longest"] / SECOND, row["reason"],
            row["error"], row["failure"].asDict() if has_facts and row["failure"] else None,
        )
        for row in found.orderBy(fn.col("seconds").desc(), "begin", *ties).limit(most).collect()
    ]  # fmt: skip


def _most_severe(rows: DataFrame, *, most: int) -> tuple[Incident, ...]:
    chosen = ("begin", "until", "open", "down_seconds", "flaps", "status", "reason", "error", "peak_backlog")
    found = rows.select(*identity_columns(), *chosen).orderBy(fn.col("down_seconds").desc(), "begin", *LINK).limit(most)
    incidents = (
        Incident(
            identity_of(row), Bounds(row["begin"], row["until"]), row["open"], float(row["down_seconds"]), row["flaps"],
            row["status"], row["reason"], row["error"], row["peak_backlog"],
        )
        for row in found.collect()
    )  # fmt: skip
    return tuple(sorted(incidents, key=lambda incident: incident.span.start))
