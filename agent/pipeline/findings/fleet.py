"""Time of links in each bucket: all together, and the worst of them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked, flowing, spent, spent_of, which, which_of
from agent.pipeline.findings.model import Fleet, LinkTime, Spent
from agent.pipeline.schema import LINK
from agent.pipeline.window import Bounds


def fleet(asked: Asked) -> Fleet:
    within = asked.within
    before = Bounds(2 * within.start - within.end, within.start)
    rows = asked.available_in(Bounds(before.start, within.end), "hour").withColumn(
        "now", fn.unix_micros("start") >= within.start
    )
    sums = rows.groupBy("now").agg(fn.count_distinct(*LINK).alias("links"), *spent()).collect()
    found = {row["now"]: (spent_of(row), row["links"]) for row in sums}
    time, links = found.get(True, (Spent(), 0))
    previous, previous_links = found.get(False, (None, 0))
    return Fleet(links, time, previous, previous_links)


def worst(asked: Asked, *, most: int) -> tuple[LinkTime, ...]:
    """The least available first; then those with the least coverage."""
    rows = by_link(asked).orderBy(fn.col("share").asc_nulls_last(), fn.col("unknown").desc(), *LINK).limit(most)
    return tuple(map(time_of, rows.collect()))


def by_link(asked: Asked) -> DataFrame:
    """A row for each link; `share` is its availability."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    found = asked.availability("day").groupBy(*LINK)
    return found.agg(*which(), *spent(), fn.sum("incidents").alias("incidents"), share.alias("share"))


def time_of(row: Any) -> LinkTime:
    return LinkTime(which_of(row), spent_of(row), row["incidents"] or 0)
