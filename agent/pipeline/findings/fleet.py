"""Time of links in each bucket: all together, and the worst of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked, flowing, spent, spent_of, which, which_of
from agent.pipeline.findings.model import Fleet, LagTime, LinkTime, Spent
from agent.pipeline.schema import LINK, Bucket
from agent.pipeline.window import Bounds


def fleet(asked: Asked) -> Fleet:
    within = asked.within
    before = Bounds(2 * within.start - within.end, within.start)
    rows = asked.available_in(Bounds(before.start, within.end), "hour").withColumn(
        "now", fn.unix_micros("start") >= within.start
    )
    of_links = rows.groupBy("now", *LINK).agg(*spent(), _lag_critical())
    sums = of_links.groupBy("now").agg(
        fn.count(fn.lit(1)).alias("links"),
        *(fn.sum(bucket.value).alias(bucket.value) for bucket in Bucket),
        fn.sum("lag_critical").alias("lag_critical"),
        fn.count_if(fn.col("lag_critical") > 0).alias("lag_links"),
        fn.count("lag_critical").alias("known_links"),
    )
    found = {row["now"]: row for row in sums.collect()}
    now, previous = found.get(True), found.get(False)
    return Fleet(
        now["links"] if now else 0,
        spent_of(now) if now else Spent(),
        spent_of(previous) if previous else None,
        previous["links"] if previous else 0,
        LagTime(_seconds_or_none(now["lag_critical"]), now["lag_links"], now["known_links"]) if now else LagTime(),
    )


def worst(asked: Asked, *, most: int) -> tuple[LinkTime, ...]:
    """The least available first; then those whose lag was critical for longest, and those with the least coverage."""
    lag = fn.col("lag_critical").desc_nulls_last()
    rows = by_link(asked).orderBy(fn.col("share").asc_nulls_last(), lag, fn.col("unknown").desc(), *LINK).limit(most)
    return tuple(map(time_of, rows.collect()))


def by_link(asked: Asked) -> DataFrame:
    """A row for each link; `share` is its availability."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    found = asked.availability("day").groupBy(*LINK)
    return found.agg(*which(), *spent(), _lag_critical(), fn.sum("incidents").alias("incidents"), share.alias("share"))


def time_of(row: Any) -> LinkTime:
    return LinkTime(which_of(row), spent_of(row), row["incidents"] or 0, _seconds_or_none(row["lag_critical"]))


def _lag_critical() -> Column:
    """Null if that is unknown."""
    return fn.sum("lag_critical_seconds").alias("lag_critical")


def _seconds_or_none(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
