"""The lives of each agent, according to its own lines; and the life that a line on a link belongs to."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import AgentStatus, EventType
from agent.pipeline.schema import MISSED_HEARTBEATS, NAMELESS, USUAL_INTERVAL
from agent.pipeline.window import Bounds

_AGENT = ("group", "agent")


def lives(lines: DataFrame, within: Bounds) -> DataFrame:
    """One row from a start to a stop, a restart, or the last heartbeat before three were missed.

    `last` is the last instant with a line of the agent; lines before `until` belong to this life. `run` counts the
    starts: 0 is a life without a start in the data.
    """
    own = with_groups(lines.where(fn.col("type") == EventType.AGENT), into="group")
    # Of lines that are there twice, the first knows what is missing before it.
    ordered = Window.partitionBy(*_AGENT).orderBy("ts", "seq", fn.desc("silent"), fn.desc("first"))
    again = fn.lag(fn.struct("ts", "seq", "status")).over(ordered) == fn.struct("ts", "seq", "status")
    once = own.withColumn("again", again).where(~fn.coalesce("again", fn.lit(False)))
    reported = once.withColumn("before", fn.lag(fn.struct("ts", "status", "interval")).over(ordered))
    before = fn.col("before")
    patience = MISSED_HEARTBEATS * fn.coalesce(before["interval"], fn.lit(USUAL_INTERVAL))
    begins = (
        before.isNull()
        | (fn.col("status") == AgentStatus.STARTED)
        | (before["status"] == AgentStatus.STOPPED)
        # Its start was lost.
        | fn.coalesce(fn.col("interval") != before["interval"], fn.lit(False))
        # Elsewhere heartbeats may have been removed by thinning, which doesn't know yet which group a start belongs to.
        | ((fn.col("silent") | fn.col("first")) & (fn.col("ts") - before["ts"] > patience))
    )
    numbered = reported.withColumns(
        {
            "life": fn.sum(begins.cast("int")).over(ordered),
            "run": fn.sum((fn.col("status") == AgentStatus.STARTED).cast("int")).over(ordered),
        }
    )
    found = numbered.groupBy(*_AGENT, "life").agg(
        fn.min("ts").alias("begin"),
        fn.max("ts").alias("last_line"),
        fn.max("run").alias("run"),
        fn.max(fn.col("status") == AgentStatus.STOPPED).alias("stopped"),
        fn.coalesce(fn.max("interval"), fn.lit(USUAL_INTERVAL)).alias("interval"),
    )
    return _with_ends(found, within)


def with_groups(own: DataFrame, *, into: str) -> DataFrame:
    """An agent knows its cluster, and so its group, only after its start: later lines of the same run have it."""
    run = Window.partitionBy("agent", "told_in").orderBy("ts").rangeBetween(Window.currentRow, NAMELESS)
    later = fn.first("group", ignorenulls=True).over(run)
    return own.withColumn(into, fn.coalesce("group", later, "agent"))


def _with_ends(found: DataFrame, within: Bounds) -> DataFrame:
    after = fn.lead("begin").over(Window.partitionBy(*_AGENT).orderBy("life"))
    missed = fn.col("last_line") + MISSED_HEARTBEATS * fn.col("interval")
    deadline = fn.when(fn.col("stopped"), fn.col("last_line")).otherwise(missed)
    # The agent counts as alive until three heartbeats can have been missed.
    undecided = ~fn.col("stopped") & fn.col("after").isNull() & (fn.col("deadline") >= within.end)
    last = fn.when(undecided, fn.greatest("last_line", fn.lit(within.end))).otherwise(fn.col("last_line"))
    bounded = found.withColumns({"after": after, "deadline": deadline}).withColumn("last", last)
    bounded = bounded.withColumn("until", fn.least("deadline", "after"))
    return bounded.select(*_AGENT, "life", "run", "begin", "last", "last_line", "until", "interval")


def with_lives(lines: DataFrame, found: DataFrame) -> DataFrame:
    """Lines on links with the life of the agent that wrote them; without one if the agent has no lines of its own."""
    on_links = lines.where(fn.col("type") != EventType.AGENT).drop("interval", "told_in")
    ts, until, last_line = fn.col("ts"), fn.col("until"), fn.col("last_line")
    inside = (ts >= fn.col("begin")) & ((ts < until) | ((ts == last_line) & (until == last_line)))
    lives_of = found.withColumnsRenamed({name: f"its_{name}" for name in _AGENT})
    same = (fn.col("group") == fn.col("its_group")) & (fn.col("agent") == fn.col("its_agent"))
    return on_links.join(lives_of, same & inside, "left").drop("its_group", "its_agent")
