"""Time of each link in each bucket, by hour and by day of a time zone, and its failures; also by pair of clusters.
And the share of an objective's budget that has been used, and the rate at which it is being used now.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.objectives import Objective, ObjectiveKind
from agent.pipeline.schema import CELL, EXPECTED, LINK, SECOND, Bucket
from agent.pipeline.spark import literal_table
from agent.pipeline.window import Bounds, by_hour_and_day, seconds, split_by_hour, with_hour

_BUCKETS = tuple(bucket.value for bucket in Bucket)


def availability(found: DataFrame, failures: DataFrame, hours: DataFrame, within: Bounds) -> DataFrame:
    spans = found.select(*LINK, "start", "end", "bucket").unionByName(_lags(found), allowMissingColumns=True)
    parts = split_by_hour(spans, hours)
    changed = (
        fn.col("bucket").isNotNull() & (fn.col("start") >= fn.col("hour_start")) & (fn.col("start") > within.start)
    )
    critical = fn.col("critical")
    by_hour = parts.groupBy(*LINK, "hour_start", "hour_end", "day").agg(
        *(fn.sum(fn.when(fn.col("bucket") == name, fn.col("part")).otherwise(0)).alias(name) for name in _BUCKETS),
        # An interval that crosses midnight UTC within an hour has two parts.
        fn.size(fn.collect_set(fn.when(changed, fn.col("start")))).cast("bigint").alias("transitions"),
        # Null if nothing is known of the lag.
        fn.sum(fn.when(critical, fn.col("part")).when(~critical, 0)).alias("lag_critical"),
    )
    spent = by_hour_and_day(by_hour).groupBy(*LINK, "day", "hour").agg(
        fn.min("hour_start").alias("start"),
        fn.max("hour_end").alias("end"),
        *(fn.sum(name).alias(name) for name in (*_BUCKETS, "transitions", "lag_critical")),
    )  # fmt: skip
    return _finished(spent, _incidents_by_period(failures, hours))


def _lags(found: DataFrame) -> DataFrame:
    """The times in which the lag of a link that should move messages was critical or not; nothing for the rest."""
    expected = found.where(fn.col("bucket").isin([bucket.value for bucket in EXPECTED]))
    return expected.select(*LINK, fn.inline("lags"))


def _incidents_by_period(failures: DataFrame, hours: DataFrame) -> DataFrame:
    """Incidents, counted where they begin; an open one has lasted until now and has no repair time."""
    begun = with_hour(failures, "start", hours).withColumn("lasted", fn.col("end") - fn.col("start"))
    periods = by_hour_and_day(begun).groupBy(*LINK, "day", "hour")
    return periods.agg(
        fn.count("lasted").alias("incidents"),
        fn.expr("sum(lasted) filter (where not open)").alias("repair"),
        fn.count_if(~fn.col("open")).alias("repaired"),
        fn.expr("percentile_disc(0.5) within group (order by lasted)").alias("median"),
        fn.expr("percentile_disc(0.9) within group (order by lasted)").alias("p90"),
        fn.max("lasted").alias("longest"),
    )


def _finished(spent: DataFrame, failed: DataFrame) -> DataFrame:
    same = [spent[key].eqNullSafe(failed[key]) for key in (*LINK, "day", "hour")]
    joined = spent.join(failed, same, "left").select(
        *(spent[name] for name in spent.columns),
        *(failed[name] for name in ("incidents", "repair", "repaired", "median", "p90", "longest")),
    )
    flowing = fn.col("up") + fn.col("degraded") + fn.col("down")
    whole = fn.col("end") - fn.col("start")
    return joined.select(
        *LINK,
        fn.when(fn.col("hour").isNull(), "day").otherwise("hour").alias("period"),
        fn.timestamp_micros("start").alias("start"),
        fn.timestamp_micros("end").alias("end"),
        *(seconds(fn.col(bucket.value)).alias(f"{bucket}_seconds") for bucket in Bucket),
        percent(fn.col("up"), flowing).alias("availability_percent"),
        percent(fn.col("up"), flowing + fn.col("paused")).alias("availability_with_pauses_percent"),
        percent(whole - fn.col("unknown"), whole).alias("coverage_percent"),
        "transitions",
        fn.coalesce("incidents", fn.lit(0)).alias("incidents"),
        seconds(fn.expr("repair div nullif(repaired, 0)")).alias("mttr_seconds"),
        seconds(fn.expr("(up + degraded) div incidents")).alias("mtbf_seconds"),
        seconds(fn.col("median")).alias("outage_median_seconds"),
        seconds(fn.col("p90")).alias("outage_p90_seconds"),
        seconds(fn.col("longest")).alias("outage_max_seconds"),
        seconds(fn.col("lag_critical")).alias("lag_critical_seconds"),
        fn.col("day").alias("date"),
    )


def percent(part: Column, whole: Column) -> Column:
    """The percentage; null if the total is zero."""
    return fn.when(whole > 0, part / whole * 100.0)


def availability_share() -> Column:
    """From rows of the table: the share of the time in which messages should have flowed that was up; null if there was
    none. A sum of decimals is the same in any order; a sum of doubles is not."""
    flowing = fn.sum(fn.col("up_seconds") + fn.col("degraded_seconds") + fn.col("down_seconds"))
    return fn.try_divide(fn.sum("up_seconds").cast("double"), flowing.cast("double"))


def edges(available: DataFrame, passed: DataFrame) -> DataFrame:
    """The pairs of clusters, from the finished tables `availability` and `traffic`; a link without known availability
    is never the worst."""
    ends = ("upstream_cluster", "cluster", "date")
    moved = passed.groupBy(*LINK, "date").agg(fn.sum("messages").alias("messages"), fn.sum("bytes").alias("bytes"))
    days = available.where(fn.col("period") == "day").join(moved, [*LINK, "date"], "left")
    own = fn.col("availability_percent")
    return days.groupBy(*ends).agg(
        fn.count("link").alias("links"),
        fn.coalesce(fn.sum("messages"), fn.lit(0)).alias("messages"),
        fn.coalesce(fn.sum("bytes"), fn.lit(0)).alias("bytes"),
        (100.0 * availability_share()).alias("availability_percent"),
        fn.min_by("link", fn.when(own.isNotNull(), fn.struct(own, "group", "link"))).alias("worst_link"),
        fn.min(own).alias("worst_link_availability_percent"),
    )


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
