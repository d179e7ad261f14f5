"""Groups of agents beside each other, and the links that each should look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import Column, Window
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked, flowing, spent, spent_of
from agent.pipeline.findings.fleet import by_link, time_of
from agent.pipeline.findings.model import GroupTime, LinkTime
from agent.pipeline.schema import LINK

OF_EACH: Final = 5


def compared(asked: Asked, *, most: int) -> tuple[GroupTime, ...]:
    """The least available group first."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    days = asked.availability("day").groupBy("group")
    moved = asked.traffic().groupBy(fn.col("group").alias("of")).agg(fn.sum("messages").alias("messages"))
    found = days.agg(
        fn.count_distinct("link").alias("links"), *spent(), fn.sum("incidents").alias("incidents"), share.alias("share")
    )
    same = fn.col("group").eqNullSafe(fn.col("of"))
    rows = found.join(moved, same, "left").orderBy(fn.col("share").asc_nulls_last(), "group").limit(most).collect()
    worst = _worst(asked, {row["group"] for row in rows}) if len(rows) > 1 else {}
    return tuple(
        GroupTime(
            row["group"],
            row["links"],
            spent_of(row),
            row["incidents"] or 0,
            row["messages"] or 0,
            worst.get(row["group"], ()),
        )
        for row in rows
    )


def _worst(asked: Asked, groups: Collection[str | None]) -> Mapping[str | None, tuple[LinkTime, ...]]:
    """Of each group the least available links, of those that weren't fully available or whose lag was critical."""
    in_order = Window.partitionBy("group").orderBy("share", fn.col("lag_critical").desc_nulls_last(), *LINK)
    worse = (fn.col("share") < 1) | (fn.coalesce("lag_critical", fn.lit(0)) > 0)
    ranked = by_link(asked).where(_is_in(groups) & worse).withColumn("rank", fn.row_number().over(in_order))
    found: dict[str | None, list[LinkTime]] = defaultdict(list)
    for row in ranked.where(fn.col("rank") <= OF_EACH).orderBy("rank").collect():
        found[row["group"]].append(time_of(row))
    return {group: tuple(links) for group, links in found.items()}


def _is_in(groups: Collection[str | None]) -> Column:
    named = fn.col("group").isin([group for group in groups if group is not None])
    return fn.coalesce(named, fn.lit(None in groups))
