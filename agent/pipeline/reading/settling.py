"""Reduces a past day to the few lines with which later days have the same results as with all of them.

Its intervals of five minutes have been counted. What remains is the period in which an agent reported the same, the
values of counters, and gaps: a few lines a day for each agent and link.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import EventType
from agent.pipeline.reading import presence
from agent.pipeline.reading.ledger import DAY
from agent.pipeline.reading.thinning import COMPARED, MISSED_HEARTBEATS, differs, matters_by_itself
from agent.pipeline.schema import CELL, TRAITS
from agent.pipeline.tables.traffic import measured
from agent.pipeline.window import Bounds

_ALSO: Final = ("silent", "first", "life", "named", "traits", "measured")
_OF_AGENT: Final = ("interval", "told_in")


def settled(lines: DataFrame, within: Bounds) -> DataFrame:
    """Adds `day`, and sets `unbroken`: between this line and the next were others with the same status, none late."""
    own = presence.grouped(lines.where(fn.col("type") == EventType.AGENT), into="speaker")
    of_links = presence.placed(lines, presence.lives(lines, within)).withColumn("speaker", fn.col("group"))
    spoken = [name for name in lines.columns if name not in _OF_AGENT]
    return _few(own.unionByName(of_links.select(*spoken, "speaker", "life"), allowMissingColumns=True), lines.columns)


def _few(reported: DataFrame, names: list[str]) -> DataFrame:
    rest = [name for name in names if name not in (*COMPARED, *_ALSO, "unbroken")]
    packed = reported.withColumns(
        {"traits": fn.xxhash64(*TRAITS), "measured": measured(), "named": fn.col("group")}
    ).select(
        fn.expr(f"cell div {DAY}").alias("day"),
        "speaker",
        fn.struct(*COMPARED, *_ALSO).alias("this"),
        fn.struct(*rest).alias("rest"),
    )
    ordered = Window.partitionBy("day", "speaker", "rest.agent", "rest.link").orderBy("this.ts", "this.seq")
    neighbours = packed.withColumns({"before": fn.lag("this").over(ordered), "after": fn.lead("this").over(ordered)})
    kept = _edge("before", "this") | _edge("this", "after") | matters_by_itself()
    judged = neighbours.withColumn("kept", kept).withColumn("unbroken", ~fn.lead("kept", 1, True).over(ordered))
    return judged.where("kept").select(
        *(f"this.{name}" for name in COMPARED),
        "rest.*",
        fn.coalesce(_silent("before", "this"), fn.lit(False)).alias("silent"),
        fn.col("before").isNull().alias("first"),
        "unbroken",
        "day",
    )


def _edge(before: str, after: str) -> Column:
    first, second = fn.col(before), fn.col(after)
    another = (
        ~first["life"].eqNullSafe(second["life"])
        | ~first["named"].eqNullSafe(second["named"])
        | (first["traits"] != second["traits"])
        | (first["measured"] != second["measured"])
    )
    late = (first["type"] != EventType.AGENT) & (second["ts"] - first["ts"] > CELL)
    return differs(before, after) | fn.coalesce(another | late | _silent(before, after), fn.lit(False))


def _silent(before: str, after: str) -> Column:
    """As for lives: within a cell by its own lines, at its border by the last line before it."""
    first, second = fn.col(before), fn.col(after)
    patience = MISSED_HEARTBEATS * fn.coalesce(first["interval"], fn.lit(presence.USUAL_INTERVAL))
    missing = (second["silent"] | second["first"]) & (second["ts"] - first["ts"] > patience)
    return (second["type"] == EventType.AGENT) & missing
