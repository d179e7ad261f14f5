"""The share of an objective's budget that has been used, and the rate at which it is being used now."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.objectives import Objective, ObjectiveKind
from agent.pipeline.schema import CELL, EXPECTED, LINK, SECOND, Bucket
from agent.pipeline.spark import literal_table
from agent.pipeline.tables.availability import percent
from agent.pipeline.window import Bounds

_HOUR = 3600 * SECOND
BURNS = {"1h": _HOUR, "5m": _HOUR // 12, "6h": 6 * _HOUR, "30m": _HOUR // 2, "3d": 72 * _HOUR}
"""Read in pairs: 1h with 5m is a fast burn, 6h with 30m a slower one, 3d with 6h a slow one."""

_OBJECTIVE = "objective string, measured_by string, target double, days bigint, within double"


def slo(found: DataFrame, passed: DataFrame, objectives: Sequence[Objective], within: Bounds) -> DataFrame:
    """The use of each objective's budget, from the intervals and the finished table `traffic`. Looks back from the end
    of the window; nothing before its start counts."""
    names = ("objective", "measured_by", "target", "days", "within")
    values = [(one.name, one.kind.value, float(one.target), one.days, one.within) for one in objectives]
    rows = [dict(zip(names, each, strict=True)) for each in values]
    wanted = fn.broadcast(literal_table(found.sparkSession, rows, _OBJECTIVE))
    measured = _time(found).crossJoin(wanted.where(fn.col("measured_by") == ObjectiveKind.TIME)).drop("within")
    if any(one.kind is ObjectiveKind.MESSAGES for one in objectives):
        of_messages = wanted.where(fn.col("measured_by") == ObjectiveKind.MESSAGES)
        measured = measured.unionByName(_messages(_inside(passed, within).crossJoin(of_messages)))
    return _used_budgets(measured, within)


def _time(found: DataFrame) -> DataFrame:
    """The `amount` of time in which messages should have flowed, and the part of it that was `bad`."""
    known = found.where(fn.col("bucket").isin([bucket.value for bucket in EXPECTED]))
    amount = fn.col("end") - fn.col("start")
    bad = fn.when(fn.col("bucket") != Bucket.UP, amount).otherwise(0)
    return known.select(*LINK, "start", "end", amount.alias("amount"), bad.alias("bad"))


def _inside(passed: DataFrame, within: Bounds) -> DataFrame:
    """The measured traffic of the window, including intervals of five minutes that the window cuts."""
    start = fn.unix_micros("start")
    measured = passed.where(fn.col("transfer_counts").isNotNull())
    return measured.where((start > within.start - CELL) & (start < within.end)).withColumn("start", start)


def _messages(passed: DataFrame) -> DataFrame:
    """Uses the highest measured bound that is not above `within`."""
    every = fn.element_at("transfer_counts", -1)
    near = fn.expr("nullif(size(filter(transfer_le, bound -> bound <= within)), 0)")
    fast = fn.coalesce(fn.element_at("transfer_counts", near), fn.lit(0))
    end, bad = (fn.col("start") + CELL).alias("end"), (every - fast).alias("bad")
    objective = ("objective", "measured_by", "target", "days")
    return passed.select(*LINK, "start", end, every.alias("amount"), bad, *objective)


def _used_budgets(measured: DataFrame, within: Bounds) -> DataFrame:
    """The budgets used. For time, the part within the period counts; for messages, intervals of five minutes count as a
    whole."""
    of_time = fn.col("measured_by") == ObjectiveKind.TIME

    def last(by: Column, value: str) -> Column:
        inside = fn.col("end") - fn.greatest("start", fn.lit(within.end) - by)
        part = fn.when(of_time, fn.least(value, inside)).otherwise(fn.col(value))
        return fn.sum(fn.when(inside > 0, part).otherwise(0))

    whole = fn.col("days") * 24 * _HOUR
    sums = measured.groupBy(*LINK, "objective", "measured_by", "target", "days").agg(
        last(whole, "amount").alias("amount"),
        last(whole, "bad").alias("bad"),
        *(
            fn.try_divide(last(fn.lit(span), "bad"), last(fn.lit(span), "amount")).alias(f"share_{name}")
            for name, span in BURNS.items()
        ),
    )
    allowed = 1 - fn.col("target") / 100
    seen = fn.least(whole, fn.lit(within.end - within.start))
    unit = fn.when(of_time, float(SECOND)).otherwise(1.0)
    consumed = percent(fn.col("bad"), fn.col("amount") * allowed)
    return sums.select(
        *LINK,
        "objective",
        "measured_by",
        fn.col("target").alias("target_percent"),
        fn.col("days").alias("window_days"),
        (fn.col("amount") / unit).alias("total"),
        (fn.col("bad") / unit).alias("bad"),
        percent(fn.col("amount") - fn.col("bad"), fn.col("amount")).alias("attained_percent"),
        consumed.alias("consumed_percent"),
        (100 - consumed).alias("remaining_percent"),
        (seen / (24.0 * _HOUR)).alias("seen_days"),
        # How many messages the rest of the period will have isn't known.
        fn.when(of_time, percent(fn.col("bad"), whole * allowed)).alias("period_consumed_percent"),
        *((fn.col(f"share_{name}") / allowed).alias(f"burn_{name}") for name in BURNS),
    )
