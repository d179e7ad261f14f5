"""Time of links in each bucket: all together, and the worst of them."""

from __future__ import annotations

from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import LONGEST, Asked, flowing, spent, spent_of, which, which_of
from agent.pipeline.findings.model import Fleet, GroupTime, LinkTime, Spent
from agent.pipeline.schema import LINK, Bucket
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


def compared(asked: Asked, *, most: int) -> tuple[GroupTime, ...]:
    """The least available group first."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    links = asked.availability("day").groupBy(*LINK).agg(
        fn.first("name", ignorenulls=True).alias("name"),
        *(fn.sum(f"{bucket}_seconds").alias(f"{bucket}_seconds") for bucket in Bucket),
        fn.sum("incidents").alias("incidents"),
        share.alias("own_share"),
    )  # fmt: skip
    moved = asked.traffic().groupBy(*LINK).agg(fn.sum("messages").alias("messages"))
    least = fn.when(fn.col("own_share") < 1, fn.struct("own_share", "link"))
    rows = (
        links.join(moved, [*LINK], "left")
        .groupBy("group")
        .agg(
            fn.count("link").alias("links"),
            *spent(),
            fn.sum("incidents").alias("incidents"),
            fn.coalesce(fn.sum("messages"), fn.lit(0)).alias("messages"),
            fn.substring(fn.min_by("name", least), 1, LONGEST).alias("worst"),
            share.alias("share"),
        )
        .orderBy(fn.col("share").asc_nulls_last(), "group")
        .limit(most)
    )
    return tuple(
        GroupTime(row["group"], row["links"], spent_of(row), row["incidents"] or 0, row["messages"], row["worst"])
        for row in rows.collect()
    )


def worst(asked: Asked, *, most: int) -> tuple[LinkTime, ...]:
    """The least available first; then those with the least coverage."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    rows = (
        asked.availability("day")
        .groupBy(*LINK)
        .agg(*which(), *spent(), fn.sum("incidents").alias("incidents"), share.alias("share"))
        .orderBy(fn.col("share").asc_nulls_last(), fn.col("unknown").desc(), *LINK)
        .limit(most)
    )
    return tuple(LinkTime(which_of(row), spent_of(row), row["incidents"] or 0) for row in rows.collect())
