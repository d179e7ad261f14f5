"""Keeps the first and the last of consecutive lines with the same status: the tables are the same as with all lines.

Only neighbours within five minutes of one agent's lines on one link are compared. So this step, the only one that moves
all lines, is spread evenly however many lines one link has, and every later step moves only a fraction.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import AgentStatus, EventType
from agent.pipeline.schema import COUNTERS

MISSED_HEARTBEATS: Final = 3

COMPARED: Final = ("ts", "seq", "status", "type", "told_in", "backlog", "interval", *COUNTERS)


def thin(lines: DataFrame) -> DataFrame:
    """Adds `cell_backlog`, the highest of an agent, link and cell; `silent`: heartbeats are missing before it; `first`:
    it is the first of its cell; `lines`, with the first: their number; and `unbroken`, for settled days."""
    rest = [name for name in lines.columns if name not in COMPARED]
    # One number sorts much faster than five texts, and a struct is copied as a whole, columns one by one.
    packed = lines.select(
        fn.xxhash64("group", "agent", "link", "cell", "line").alias("key"),
        "ts",
        "seq",
        fn.struct(*COMPARED).alias("this"),
        fn.struct(*rest).alias("rest"),
    )
    ordered = Window.partitionBy("key").orderBy("ts", "seq")
    cell = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    neighbours = packed.withColumns(
        {
            "before": fn.lag("this").over(ordered),
            "after": fn.lead("this").over(ordered),
            "cell_backlog": fn.max("this.backlog").over(cell),
            "all": fn.count(fn.lit(1)).over(cell),
        }
    )
    kept = neighbours.where(
        _edge("before", "this") | _edge("this", "after") | matters_by_itself() | fn.col("rest.why").isNotNull()
    )
    silent = fn.coalesce(_silent("before", "this"), fn.lit(False)).alias("silent")
    first = fn.col("before").isNull()
    counted = fn.when(first, fn.col("all")).otherwise(0)
    return kept.select(
        "this.*",
        "rest.*",
        "cell_backlog",
        silent,
        first.alias("first"),
        counted.alias("lines"),
        fn.lit(False).alias("unbroken"),
    )


def _edge(before: str, after: str) -> Column:
    """Whether something changed or is missing between two lines, or one of them doesn't exist."""
    return differs(before, after) | fn.coalesce(_silent(before, after), fn.lit(False))


def differs(before: str, after: str) -> Column:
    """Whether two lines have a different status, or one of them doesn't exist."""
    first, second = fn.col(before), fn.col(after)
    changed = (first["status"] != second["status"]) | (first["type"] != second["type"])
    # Null on a link's lines.
    another_run = (first["told_in"] != second["told_in"]) | (first["interval"] != second["interval"])
    disordered = second["seq"] < first["seq"]
    fell = fn.greatest(*(first[counter] - second[counter] for counter in COUNTERS)) > 0
    return fn.coalesce(changed | disordered | fell, fn.lit(True)) | fn.coalesce(another_run, fn.lit(False))


def _silent(before: str, after: str) -> Column:
    """Whether three heartbeats of an agent are missing between two of its lines."""
    return fn.col(after)["ts"] - fn.col(before)["ts"] > MISSED_HEARTBEATS * fn.col(before)["interval"]


def matters_by_itself() -> Column:
    """Lines to keep in any case: a peak of the backlog while messages don't flow, and an agent's own lines except
    heartbeats."""
    this, none = fn.col("this"), fn.lit(-1)
    backlog = this["backlog"]
    rose = backlog > fn.coalesce(fn.col("before")["backlog"], none)
    falls = backlog >= fn.coalesce(fn.col("after")["backlog"], none)
    of_agent = (this["type"] == EventType.AGENT) & (this["status"] != AgentStatus.HEARTBEAT)
    return fn.coalesce(rose & falls & (this["status"] != "running"), fn.lit(False)) | of_agent
