"""From reports on a standby to what it was at each instant: of what the agents of a group say, the worst counts."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import StandbyVerdict
from agent.pipeline.window import Bounds

_WORST_FIRST: Final = (StandbyVerdict.PROMOTED.value, StandbyVerdict.NOT_IN_STEP.value, StandbyVerdict.IN_STEP.value)
"""An agent that runs no link of the standby sees none that fails, and a promotion is seen by one agent first."""


def standby(reports: DataFrame, within: Bounds) -> DataFrame:
    """A row for each period of a group with the same verdict; none while nothing is known."""
    by_time = Window.partitionBy("group").orderBy("at")
    states = _changes(reports, within).withColumns(
        {f"{verdict}_count": fn.sum(f"{verdict}_change").over(by_time) for verdict in _WORST_FIRST}
        | {f"{verdict}_said": fn.last(f"{verdict}_said", ignorenulls=True).over(by_time) for verdict in _WORST_FIRST}
        | {"end": fn.lead("at").over(by_time)}
    )
    holds = {verdict: fn.col(f"{verdict}_count") > 0 for verdict in _WORST_FIRST}
    status = fn.coalesce(*(fn.when(holds[verdict], verdict) for verdict in _WORST_FIRST))
    said = fn.coalesce(*(fn.when(holds[verdict], fn.col(f"{verdict}_said")) for verdict in _WORST_FIRST))
    pieces = states.select("group", fn.col("at").alias("start"), "end", status.alias("status"), said.alias("said"))
    return _merged(pieces.where(fn.col("status").isNotNull() & fn.col("end").isNotNull()))


def _changes(reports: DataFrame, within: Bounds) -> DataFrame:
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


def _merged(pieces: DataFrame) -> DataFrame:
    by_time = Window.partitionBy("group").orderBy("start")
    goes_on = (fn.lag("status").over(by_time) == fn.col("status")) & (fn.lag("end").over(by_time) == fn.col("start"))
    return (
        pieces.withColumn("begins", (~fn.coalesce(goes_on, fn.lit(False))).cast("int"))
        .withColumn("number", fn.sum("begins").over(by_time))
        .groupBy("group", "number", "status")
        .agg(fn.min("start").alias("start"), fn.max("end").alias("end"), fn.min_by("said", "start").alias("said"))
        .select("group", "status", "start", "end", "said.agent", "said.error")
    )
