"""Incidents and the outages they form: all are counted, the most severe are listed."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import LONGEST, Asked, named, which, which_of
from agent.pipeline.findings.model import Failures, Incident, Outage, Span
from agent.pipeline.schema import LINK


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
    return Failures(
        counts["incidents"],
        counts["open"],
        counts["shared"],
        counts["outages"],
        counts["waited"],
        _outages(rows, most=outages),
        _most_severe(rows, most=incidents),
    )


def _outages(rows: DataFrame, *, most: int) -> tuple[Outage, ...]:
    found = (
        rows.groupBy("of")
        .agg(
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
        .orderBy(fn.col("down").desc(), "begin", "of")
        .limit(most)
    )
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
