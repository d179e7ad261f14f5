"""The account of every message that a link took, by hour and by day; what doesn't add up is a column of its own.

Where the upstream's HTTP API is known, also of every message that entered the link's queue.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.pipeline.schema import CELL, LINK, UPSTREAM_COUNTERS
from agent.pipeline.window import Bounds, with_hour

_ENDS: Final = ("forwarded", "dropped", "quarantined", "given_back")
_COUNTED: Final = ("taken", *_ENDS)
_UPSTREAM: Final = ("entered", "acknowledged", "growth", "expired", "uncounted", "repeated", "unexplained_upstream")


def account(counted: DataFrame, hours: DataFrame, within: Bounds) -> DataFrame:
    """The account by hour and day in which a link was reported, from the gains of `traffic.cells`. Agents that don't
    count what they take leave nulls."""
    at = fn.greatest(fn.col("cell") * CELL, fn.lit(within.start))
    dated = with_hour(counted.withColumn("at", at), "at", hours)
    # Days are not complete in a window, and have 23 to 25 hours.
    days = hours.groupBy("day").agg(fn.min("hour_start").alias("day_start"), fn.max("hour_end").alias("day_end"))
    so_far = Window.partitionBy(*LINK).orderBy("hour_start")
    by_hour = (
        dated.groupBy(*LINK, "day", "hour_start", "hour_end")
        .agg(
            *(fn.sum(name).alias(name) for name in (*_COUNTED, *UPSTREAM_COUNTERS, "growth")),
            fn.coalesce(fn.sum("settling"), fn.lit(0)).alias("settling"),
            fn.every("accounted").alias("accounted"),
            fn.first("opening").alias("opening"),
            fn.max_by("waiting", fn.when(fn.col("waiting").isNotNull(), fn.col("cell"))).alias("waiting"),
        )
        .withColumn("in_flight_end", fn.col("opening") + fn.sum("settling").over(so_far))
        .withColumn("in_flight_start", fn.col("in_flight_end") - fn.col("settling"))
        .withColumns(_upstream())
    )
    by_day = (
        by_hour.groupBy(*LINK, "day")
        .agg(
            *(fn.sum(name).alias(name) for name in (*_COUNTED, *_UPSTREAM)),
            fn.every("accounted").alias("accounted"),
            fn.min_by("in_flight_start", "hour_start").alias("in_flight_start"),
            fn.max_by("in_flight_end", "hour_start").alias("in_flight_end"),
            fn.max_by("waiting", fn.when(fn.col("waiting").isNotNull(), fn.col("hour_start"))).alias("waiting"),
        )
        .join(fn.broadcast(days), "day")
    )
    in_hours = _rows(by_hour, "hour", fn.col("hour_start"), fn.col("hour_end"))
    return in_hours.unionByName(_rows(by_day, "day", fn.col("day_start"), fn.col("day_end")))


def _upstream() -> dict[str, Column]:
    """Columns of an hour, null where nothing could be compared in it. A later comparison counts in its own hour."""
    entered, acknowledged, settled = (fn.col(name) for name in ("entered", "acknowledged", "settled"))
    unacknowledged = entered - acknowledged - fn.col("growth")
    # What is settled here and not acknowledged there comes again: the broker says so of as many at most.
    repeated = fn.greatest(fn.least(settled - acknowledged, fn.col("settled_again")), fn.lit(0))
    values = {
        "expired": fn.greatest(unacknowledged, fn.lit(0)),
        "uncounted": fn.greatest(-unacknowledged, fn.lit(0)),
        "repeated": repeated,
        "unexplained_upstream": acknowledged - settled + repeated,
        **{name: fn.col(name) for name in ("entered", "acknowledged", "growth", "waiting")},
    }
    return {name: fn.when(fn.col("looks") > 0, value) for name, value in values.items()}


def with_other_consumers(accounts: DataFrame) -> DataFrame:
    """The accounts without what other consumers may change: the queue of a queue link has other consumers upstream, and
    what they acknowledge is none of the link's."""
    is_shared = fn.coalesce(fn.col("kind") == "queue", fn.lit(False))
    unknown = ("repeated", "unexplained_upstream")
    return accounts.withColumns({name: fn.when(~is_shared, fn.col(name)) for name in unknown})


def _rows(summed: DataFrame, period: str, start: Column, end: Column) -> DataFrame:
    explained = sum((fn.col(name) for name in _ENDS), fn.col("in_flight_end") - fn.col("in_flight_start"))

    def if_accounted(value: Column, name: str) -> Column:
        return fn.when(fn.col("accounted"), value).alias(name)

    return summed.select(
        *LINK,
        fn.lit(period).alias("period"),
        fn.timestamp_micros(start).alias("start"),
        fn.timestamp_micros(end).alias("end"),
        if_accounted(fn.col("taken"), "taken"),
        *("forwarded", "dropped", "quarantined"),
        *(if_accounted(fn.col(name), name) for name in ("given_back", "in_flight_start", "in_flight_end")),
        if_accounted(fn.col("taken") - explained, "unexplained"),
        *("entered", "acknowledged", "expired", "uncounted", "repeated"),
        (fn.col("waiting") - fn.col("growth")).alias("backlog_start"),
        fn.col("waiting").alias("backlog_end"),
        "unexplained_upstream",
        fn.col("day").alias("date"),
    )
