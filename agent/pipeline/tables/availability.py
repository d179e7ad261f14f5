"""Time of each link in each bucket, by hour and by day of a time zone, and its failures; also by pair of clusters."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.schema import EXPECTED, LINK, Bucket
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
