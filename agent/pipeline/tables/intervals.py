"""From reports to intervals: how long each report of an agent on a link is valid, and, of all reports together,
exactly one status of the link at each instant of the window; and what a standby was at each, where of what the
agents of a group say the worst counts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import EventType, StandbyVerdict
from agent.pipeline.schema import (
    BUCKETS,
    CAUSE,
    CELL,
    LINK,
    LINK_ATTRIBUTES,
    MISSED_HEARTBEATS,
    REPORTER,
    USUAL_INTERVAL,
    Bucket,
)
from agent.pipeline.window import Bounds

_REPORTED = ("agent", *CAUSE, "backlog")
_LAG_KNOWN, _LAG_CRITICAL = 2**20, 2**40
"""Beside how many agents report a status, the same number counts how many of them know its lag, and of how many that is
critical: three sums for each status would be three times as many columns."""


def agent_reports(lines: DataFrame, within: Bounds) -> DataFrame:
    """One row for each period in which an agent reports the same status of a link, and the same of its lag."""
    ordered = Window.partitionBy(*REPORTER).orderBy("ts", "seq")
    sampled = fn.max(fn.col("type").isin(EventType.SAMPLE.value, EventType.STANDBY.value)).over(ordered)
    followed = lines.withColumns(
        {"next_ts": fn.lead("ts").over(ordered), "next_life": fn.lead("life").over(ordered), "sampled": sampled}
    ).withColumn("valid_until", _valid_until(within))
    # A link whose samples stop has ended, even if its agent is alive.
    silent = fn.col("sampled") & ~fn.col("unbroken") & (fn.col("valid_until") - fn.col("ts") > _patience())
    reported = followed.withColumn("valid_until", fn.when(silent, fn.col("ts")).otherwise(fn.col("valid_until")))
    return _joined_reports(reported)


def _valid_until(within: Bounds) -> Column:
    ts, following = fn.col("ts"), fn.col("next_ts")
    same_life = fn.col("next_life") == fn.col("life")
    by_agent = fn.when(same_life, following).otherwise(fn.greatest(ts, fn.col("last")))
    end = fn.coalesce(following, fn.greatest(ts, fn.lit(within.end)))
    by_itself = fn.when(fn.col("unbroken") | (end - ts <= _patience()), end).otherwise(ts)
    return fn.when(fn.col("life").isNull(), by_itself).otherwise(by_agent)


def _patience() -> Column:
    interval = fn.coalesce("interval", fn.lit(USUAL_INTERVAL))
    return fn.greatest(MISSED_HEARTBEATS * interval, fn.lit(CELL))


def _joined_reports(reported: DataFrame) -> DataFrame:
    """Combines lines that report the same, with no gap between them."""
    ordered = Window.partitionBy(*REPORTER).orderBy("ts", "seq")
    before = fn.lag(fn.struct("valid_until", "status", "lag_is_critical")).over(ordered)
    same = fn.col("before")["status"] == fn.col("status")
    same &= fn.col("before")["lag_is_critical"].eqNullSafe(fn.col("lag_is_critical"))
    goes_on = (fn.col("before")["valid_until"] >= fn.col("ts")) & same
    return (
        reported.withColumn("before", before)
        .withColumn("stretch", fn.sum((~fn.coalesce(goes_on, fn.lit(False))).cast("int")).over(ordered))
        .groupBy(*REPORTER, "stretch", "status", "lag_is_critical")
        .agg(
            fn.min("ts").alias("start"),
            fn.max("valid_until").alias("end"),
            fn.min_by(fn.struct(*CAUSE), fn.struct("ts", "seq")).alias("reported"),
            fn.max("backlog").alias("backlog"),
        )
        .select(*REPORTER, "status", "start", "end", "reported.*", "backlog", "lag_is_critical")
    )


def link_attributes(lines: DataFrame) -> DataFrame:
    """The other attributes of each link: the last reported ones."""
    latest = {name: fn.when(fn.col(name).isNotNull(), fn.struct("ts", "seq", name)) for name in LINK_ATTRIBUTES}
    return lines.groupBy(*LINK).agg(*(fn.max_by(name, order).alias(name) for name, order in latest.items()))


def intervals(reports: DataFrame, links: DataFrame, within: Bounds) -> DataFrame:
    """The best reported status counts; without a report the link is `unknown`, also before it appears. `lags`: the
    parts of it in which the lag was critical for an agent whose status counts, or for none of them."""
    points = _changes(reports, links, within)
    by_time = Window.partitionBy(*LINK).orderBy("at")
    states = points.withColumns(
        {f"{status}_count": fn.sum(f"{status}_change").over(by_time) for status in BUCKETS}
        | {f"{status}_reported": fn.last(f"{status}_reported", ignorenulls=True).over(by_time) for status in BUCKETS}
        | {"end": fn.lead("at").over(by_time)}
    )
    counts = {name: fn.col(f"{name}_count") for name in BUCKETS}
    status = fn.coalesce(*(fn.when(counts[name] > 0, name) for name in BUCKETS), fn.lit("unknown"))
    reported = fn.coalesce(*(fn.when(counts[name] > 0, fn.col(f"{name}_reported")) for name in BUCKETS))
    best = fn.coalesce(*(fn.when(counts[name] > 0, counts[name]) for name in BUCKETS), fn.lit(0))
    critical = fn.when(best >= _LAG_CRITICAL, True).when(best >= _LAG_KNOWN, False)
    found = (status.alias("status"), reported.alias("reported"), critical.alias("critical"))
    pieces = states.where(fn.col("end").isNotNull()).select(*LINK, fn.col("at").alias("start"), "end", *found)
    return _merged_pieces(pieces)


def _changes(reports: DataFrame, links: DataFrame, within: Bounds) -> DataFrame:
    """A row for each instant at which a report on a link begins or ends."""
    cut = reports.withColumns(
        {"start": fn.greatest("start", fn.lit(within.start)), "end": fn.least("end", fn.lit(within.end))}
    ).where(fn.col("start") < fn.col("end"))
    both = fn.array(
        fn.struct(fn.col("start").alias("at"), fn.lit(1).alias("change")),
        fn.struct(fn.col("end").alias("at"), fn.lit(-1).alias("change")),
    )
    changes = cut.select(*LINK, fn.inline(both), "status", "lag_is_critical", fn.struct(*_REPORTED).alias("reported"))
    edges = links.select(*LINK, fn.explode(fn.array(fn.lit(within.start), fn.lit(within.end))).alias("at"))
    begun = {status: (fn.col("status") == status) & (fn.col("change") > 0) for status in BUCKETS}
    return changes.unionByName(edges, allowMissingColumns=True).groupBy(*LINK, "at").agg(
        *(_change(status).alias(f"{status}_change") for status in BUCKETS),
        *(fn.max(fn.when(begun[status], fn.col("reported"))).alias(f"{status}_reported") for status in BUCKETS),
    )  # fmt: skip


def _change(status: str) -> Column:
    of_lag = fn.when(fn.col("lag_is_critical"), _LAG_KNOWN + _LAG_CRITICAL).when(~fn.col("lag_is_critical"), _LAG_KNOWN)
    weight = 1 + fn.coalesce(of_lag, fn.lit(0))
    return fn.sum(fn.when(fn.col("status") == status, fn.col("change") * weight).otherwise(0))


def _merged_pieces(pieces: DataFrame) -> DataFrame:
    by_time = Window.partitionBy(*LINK).orderBy("start")
    known = fn.col("critical").isNotNull()
    changed = fn.coalesce(fn.lag("status").over(by_time) != fn.col("status"), fn.lit(True))
    buckets = (fn.when(fn.col("status") == name, bucket.value) for name, bucket in BUCKETS.items())
    bucket = fn.coalesce(*buckets, fn.lit(Bucket.UNKNOWN.value))
    details = (f"reported.{name}" for name in ("agent", *CAUSE))
    return (
        pieces.withColumn("changed", changed.cast("int"))
        .withColumn("number", fn.sum("changed").over(by_time))
        .groupBy(*LINK, "number", "status")
        .agg(
            fn.min("start").alias("start"),
            fn.max("end").alias("end"),
            fn.min_by("reported", "start").alias("reported"),
            fn.max("reported.backlog").alias("backlog"),
            fn.collect_list(fn.when(known, fn.struct("start", "end", "critical"))).alias("lags"),
        )
        .select(*LINK, "start", "end", bucket.alias("bucket"), "status", *details, "backlog", "lags")
    )


_WORST_FIRST: Final = (StandbyVerdict.PROMOTED.value, StandbyVerdict.NOT_IN_STEP.value, StandbyVerdict.IN_STEP.value)
"""An agent that runs no link of the standby sees none that fails, and a promotion is seen by one agent first."""


def standby(reports: DataFrame, within: Bounds) -> DataFrame:
    """A row for each period of a group with the same verdict; none while nothing is known."""
    by_time = Window.partitionBy("group").orderBy("at")
    states = _standby_changes(reports, within).withColumns(
        {f"{verdict}_count": fn.sum(f"{verdict}_change").over(by_time) for verdict in _WORST_FIRST}
        | {f"{verdict}_said": fn.last(f"{verdict}_said", ignorenulls=True).over(by_time) for verdict in _WORST_FIRST}
        | {"end": fn.lead("at").over(by_time)}
    )
    holds = {verdict: fn.col(f"{verdict}_count") > 0 for verdict in _WORST_FIRST}
    status = fn.coalesce(*(fn.when(holds[verdict], verdict) for verdict in _WORST_FIRST))
    said = fn.coalesce(*(fn.when(holds[verdict], fn.col(f"{verdict}_said")) for verdict in _WORST_FIRST))
    pieces = states.select("group", fn.col("at").alias("start"), "end", status.alias("status"), said.alias("said"))
    return _merged_standby(pieces.where(fn.col("status").isNotNull() & fn.col("end").isNotNull()))


def _standby_changes(reports: DataFrame, within: Bounds) -> DataFrame:
    """A row for each instant at which a report begins or ends."""
    start, end = fn.greatest("start", fn.lit(within.start)), fn.least("end", fn.lit(within.end))
    cut = reports.withColumns({"start": start, "end": end}).where("start < end")
    both = fn.array(
        fn.struct(fn.col("start").alias("at"), fn.lit(1).alias("change")),
        fn.struct(fn.col("end").alias("at"), fn.lit(-1).alias("change")),
    )
    changes = cut.select("group", fn.inline(both), "status", fn.struct("agent", "error").alias("said"))
    of = {verdict: fn.col("status") == verdict for verdict in _WORST_FIRST}
    begun = fn.when(fn.col("change") > 0, fn.col("said"))
    return changes.groupBy("group", "at").agg(
        *(fn.sum(fn.when(of[verdict], fn.col("change")).otherwise(0)).alias(f"{verdict}_change") for verdict in of),
        *(fn.max(fn.when(of[verdict], begun)).alias(f"{verdict}_said") for verdict in of),
    )


def _merged_standby(pieces: DataFrame) -> DataFrame:
    by_time = Window.partitionBy("group").orderBy("start")
    goes_on = (fn.lag("status").over(by_time) == fn.col("status")) & (fn.lag("end").over(by_time) == fn.col("start"))
    return (
        pieces.withColumn("begins", (~fn.coalesce(goes_on, fn.lit(False))).cast("int"))
        .withColumn("number", fn.sum("begins").over(by_time))
        .groupBy("group", "number", "status")
        .agg(fn.min("start").alias("start"), fn.max("end").alias("end"), fn.min_by("said", "start").alias("said"))
        .select("group", "status", "start", "end", "said.agent", "said.error")
    )
