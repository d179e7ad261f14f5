"""The reports of one agent on one link, and for how long each is valid."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import EventType
from agent.pipeline.reading.presence import USUAL_INTERVAL
from agent.pipeline.reading.thinning import MISSED_HEARTBEATS
from agent.pipeline.schema import CELL
from agent.pipeline.window import Bounds

_SPEAKER = ("group", "link", "agent")


def statements(lines: DataFrame, within: Bounds) -> DataFrame:
    """One row for each period in which an agent reports the same status of a link, and the same of its lag."""
    ordered = Window.partitionBy(*_SPEAKER).orderBy("ts", "seq")
    sampled = fn.max(fn.col("type") == EventType.SAMPLE).over(ordered)
    followed = lines.withColumns(
        {"next_ts": fn.lead("ts").over(ordered), "next_life": fn.lead("life").over(ordered), "sampled": sampled}
    ).withColumn("believed", _believed_until(within))
    # A link whose samples stop has ended, even if its agent is alive.
    silent = fn.col("sampled") & ~fn.col("unbroken") & (fn.col("believed") - fn.col("ts") > _patience())
    reported = followed.withColumn("believed", fn.when(silent, fn.col("ts")).otherwise(fn.col("believed")))
    return _joined(reported)


def _believed_until(within: Bounds) -> Column:
    ts, following = fn.col("ts"), fn.col("next_ts")
    same_life = fn.col("next_life") == fn.col("life")
    by_agent = fn.when(same_life, following).otherwise(fn.greatest(ts, fn.col("last")))
    end = fn.coalesce(following, fn.greatest(ts, fn.lit(within.end)))
    by_itself = fn.when(fn.col("unbroken") | (end - ts <= _patience()), end).otherwise(ts)
    return fn.when(fn.col("life").isNull(), by_itself).otherwise(by_agent)


def _patience() -> Column:
    interval = fn.coalesce("interval", fn.lit(USUAL_INTERVAL))
    return fn.greatest(MISSED_HEARTBEATS * interval, fn.lit(CELL))


def _joined(reported: DataFrame) -> DataFrame:
    """Combines lines that report the same, with no gap between them."""
    ordered = Window.partitionBy(*_SPEAKER).orderBy("ts", "seq")
    before = fn.lag(fn.struct("believed", "status", "lag_is_critical")).over(ordered)
    same = fn.col("before")["status"] == fn.col("status")
    same &= fn.col("before")["lag_is_critical"].eqNullSafe(fn.col("lag_is_critical"))
    goes_on = (fn.col("before")["believed"] >= fn.col("ts")) & same
    return (
        reported.withColumn("before", before)
        .withColumn("stretch", fn.sum((~fn.coalesce(goes_on, fn.lit(False))).cast("int")).over(ordered))
        .groupBy(*_SPEAKER, "stretch", "status", "lag_is_critical")
        .agg(
            fn.min("ts").alias("start"),
            fn.max("believed").alias("end"),
            fn.min_by(fn.struct("reason", "error"), fn.struct("ts", "seq")).alias("reported"),
            fn.max("backlog").alias("backlog"),
        )
        .select(*_SPEAKER, "status", "start", "end", "reported.reason", "reported.error", "backlog", "lag_is_critical")
    )
