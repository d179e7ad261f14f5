"""Of lines that say the same over and over, the first and the last: the tables come out as if all had been kept.

Only neighbours within five minutes of one agent's lines on one link are looked at. So this, the one step that moves all
lines, spreads evenly however many of them one link has, and every later step moves a fraction of them.
"""

from __future__ import annotations

import operator
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import AgentStatus, EventType
from agent.pipeline.schema import COUNTERS

MISSED_HEARTBEATS = 3


def thin(lines: DataFrame) -> DataFrame:
    """Adds `cell_backlog`, the highest of an agent, link and cell, and `silent`: before it heartbeats are missing."""
    cell = Window.partitionBy("group", "agent", "link", "cell", "line")
    ordered = cell.orderBy("ts", "seq")
    neighbours = lines.withColumns(
        {
            "before": fn.lag(fn.struct("ts", "seq", "status", "backlog", "interval", *COUNTERS)).over(ordered),
            "backlog_after": fn.lead("backlog").over(ordered),
            "cell_backlog": fn.max("backlog").over(cell),
        }
    )
    marked = neighbours.withColumn("silent", fn.coalesce(_silent(), fn.lit(False))).withColumn(
        "edge", fn.coalesce(_edge(), fn.lit(True))
    )
    # Beyond the last line of a cell there is an edge.
    kept = marked.withColumn("edge_after", fn.lead("edge", 1, True).over(ordered))
    return kept.where(fn.col("edge") | fn.col("edge_after") | _matters_by_itself()).drop(
        "before", "backlog_after", "edge", "edge_after"
    )


def _edge() -> Column:
    """Between the line before and this one something changed; null where there is none before."""
    before = fn.col("before")
    changed = fn.col("status") != before["status"]
    disordered = fn.col("seq") < before["seq"]
    fell = reduce(operator.or_, (fn.col(counter) < before[counter] for counter in COUNTERS))
    return changed | disordered | fell | fn.col("silent")


def _silent() -> Column:
    """Three heartbeats of an agent are missing before this one."""
    before = fn.col("before")
    return fn.col("ts") - before["ts"] > MISSED_HEARTBEATS * before["interval"]


def _matters_by_itself() -> Column:
    """A peak of the backlog while messages don't flow, and whatever an agent says but heartbeats."""
    backlog = fn.col("backlog")
    peak = (backlog > fn.col("before")["backlog"]) & (backlog >= fn.coalesce("backlog_after", fn.lit(-1)))
    agents_own = (fn.col("type") == EventType.AGENT) & (fn.col("status") != AgentStatus.HEARTBEAT)
    return fn.coalesce(peak & (fn.col("status") != "running"), fn.lit(False)) | agents_own
