"""Incidents and the outages they form: all are counted, the most severe are listed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.model import BEHIND, SECOND, Failures, Incident, Outage, Span, Trouble
from agent.pipeline.findings.report_tables import LONGEST, WHICH, Asked, named, which, which_of
from agent.pipeline.schema import LINK, Bucket


def failures(asked: Asked, *, outages: int, incidents: int) -> Failures:
    rows = asked.incidents().withColumns(
        {
            "begin": fn.unix_micros("start"),
            "until": fn.unix_micros("end"),
            "error": fn.substring("error", 1, LONGEST),
            # An incident that no other link shares is its own outage.
            "of": fn.coalesce("outage", fn.concat_ws("/", *LINK, fn.unix_micros("start"))),
        }
    )
    counts = rows.agg(
        fn.count("of").alias("incidents"),
        fn.count_if("open").alias("open"),
        fn.count_distinct("outage").alias("shared"),
        fn.count_distinct("of").alias("outages"),
        fn.coalesce(fn.sum("peak_backlog"), fn.lit(0)).alias("waited"),
    ).collect()[0]
    together = _together(rows)
    repeated, degraded = _repeated(together), _of_origins(_degraded(asked).unionByName(_behind(asked)))
    in_all = repeated.count() + degraded.count()
    return Failures(
        counts["incidents"],
        counts["open"],
        counts["shared"],
        counts["outages"],
        counts["waited"],
        _outages(together, most=outages),
        _most_severe(rows, most=incidents),
        in_all,
        _troubles(repeated, degraded, most=outages),
    )


def _together(rows: DataFrame) -> DataFrame:
    """The incidents of each outage."""
    return rows.groupBy("of").agg(
        fn.first(LINK[0]).alias(LINK[0]),
        fn.first(LINK[1]).alias(LINK[1]),
        *which(),
        fn.first("outage_scope").alias("scope"),
        fn.first(fn.substring("outage_name", 1, LONGEST)).alias("outage_name"),
        fn.min("begin").alias("begin"),
        fn.max("until").alias("until"),
        fn.max("open").alias("open"),
        fn.count_distinct(*LINK).alias("links"),
        fn.sum("down_seconds").alias("down"),
        fn.mode("reason", True).alias("reason"),
        fn.mode("error", True).alias("error"),
    )


def _repeated(together: DataFrame) -> DataFrame:
    """Outages of the same links for the same reason, which are one line however often they came back."""
    of = fn.when(fn.col("scope").isNull(), fn.concat_ws("/", *LINK)).otherwise(fn.col("outage_name"))
    return (
        together.withColumn("same", of)
        .groupBy("scope", "same", "reason")
        .agg(
            fn.first(LINK[0]).alias(LINK[0]),
            fn.first(LINK[1]).alias(LINK[1]),
            *which(),
            fn.lit("down").alias("status"),
            fn.first("outage_name").alias("trouble_name"),
            fn.min("begin").alias("begin"),
            fn.max("until").alias("until"),
            fn.max("open").alias("open"),
            fn.max("links").alias("links"),
            fn.count("of").alias("times"),
            fn.sum("down").alias("seconds"),
            fn.max(fn.col("until") - fn.col("begin")).alias("longest"),
            fn.mode("error", True).alias("error"),
        )
    )


def _degraded(asked: Asked) -> DataFrame:
    """Links that were blocked or stalled."""
    start = fn.unix_micros("start")
    inside = (start >= asked.within.start) & (start < asked.within.end)
    lasted = (fn.unix_micros("end") - start).alias("lasted")
    spans = asked.intervals().where((fn.col("bucket") == Bucket.DEGRADED) & inside).select(
        *LINK, *(name for name in WHICH if name not in LINK), "status", "reason", "error", lasted,
        start.alias("begin"), fn.unix_micros("end").alias("until"),
    )  # fmt: skip
    return spans.withColumn("origin", _origin()).groupBy("origin", "status", *LINK).agg(
        *which(),
        fn.mode("reason", True).alias("reason"),
        fn.mode("error", True).alias("error"),
        fn.min("begin").alias("begin"),
        fn.max("until").alias("until"),
        (fn.max("until") >= asked.within.end).alias("open"),
        fn.count("lasted").alias("times"),
        fn.sum("lasted").alias("lasted"),
        fn.max("lasted").alias("longest"),
    )  # fmt: skip


def _behind(asked: Asked) -> DataFrame:
    """Links whose lag was critical. The table has sums by hour: when it began within an hour, how often it was so, and
    whether it still is at the end isn't known."""
    hours = asked.availability("hour").where("lag_critical_seconds > 0")
    lasted = (fn.sum("lag_critical_seconds") * SECOND).cast("bigint")
    return hours.withColumn("origin", _origin()).groupBy("origin", fn.lit(BEHIND).alias("status"), *LINK).agg(
        *which(),
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


def _of_origins(by_link: DataFrame) -> DataFrame:
    """Links of one upstream are one trouble; `times` is how often the one with most of them had it."""
    many = fn.count("link") > 1
    return by_link.groupBy("origin", "status").agg(
        fn.first(LINK[0]).alias(LINK[0]),
        fn.first(LINK[1]).alias(LINK[1]),
        *which(),
        fn.when(many, fn.lit("upstream")).alias("scope"),
        fn.when(many, fn.first("origin")).alias("trouble_name"),
        fn.min("begin").alias("begin"),
        fn.max("until").alias("until"),
        fn.max("open").alias("open"),
        fn.count("link").alias("links"),
        fn.max("times").alias("times"),
        (fn.sum("lasted") / SECOND).alias("seconds"),
        fn.max("longest").alias("longest"),
        fn.mode("reason", True).alias("reason"),
        fn.mode("error", True).alias("error"),
    )


def _troubles(*kinds: DataFrame, most: int) -> tuple[Trouble, ...]:
    found = [
        Trouble(
            row["status"], row["scope"], row["trouble_name"], which_of(row), Span(row["begin"], row["until"]),
            row["open"], row["links"], row["times"], float(row["seconds"]), row["longest"] / SECOND, row["reason"],
            row["error"],
        )
        for kind in kinds
        for row in kind.orderBy(fn.col("seconds").desc(), "begin", *LINK).limit(most).collect()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.span.start))[:most])


def _outages(together: DataFrame, *, most: int) -> tuple[Outage, ...]:
    found = together.orderBy(fn.col("down").desc(), "begin", "of").limit(most)
    chosen = (
        Outage(
            row["scope"], row["outage_name"], which_of(row), Span(row["begin"], row["until"]), row["open"],
            row["links"], float(row["down"]), row["reason"], row["error"],
        )
        for row in found.collect()
    )  # fmt: skip
    return tuple(sorted(chosen, key=lambda outage: outage.span.start))


def _most_severe(rows: DataFrame, *, most: int) -> tuple[Incident, ...]:
    chosen = ("begin", "until", "open", "down_seconds", "flaps", "status", "reason", "error", "peak_backlog")
    found = rows.select(*named(), *chosen).orderBy(fn.col("down_seconds").desc(), "begin", *LINK).limit(most)
    incidents = (
        Incident(
            which_of(row), Span(row["begin"], row["until"]), row["open"], float(row["down_seconds"]), row["flaps"],
            row["status"], row["reason"], row["error"], row["peak_backlog"],
        )
        for row in found.collect()
    )  # fmt: skip
    return tuple(sorted(incidents, key=lambda incident: incident.span.start))
