"""Keeps the lines that matter: with them the tables are the same as with all lines.

First the first and the last of consecutive lines that report the same. Only neighbours within five minutes of one
agent's lines on one link are compared. So this step, the only one that moves all lines, is spread evenly however many
lines one link has, and every later step moves only a fraction. Around an agent's absence all lines matter: until when a
link's status holds depends on them.

Later, past days are settled: reduced to the few lines with which later days have the same results as with all of them.
The five minutes of a settled day have been counted. What remains is the period in which an agent reported the same, the
values of counters, and gaps: a few lines a day for each agent and link.

An agent's lives follow from its own lines; a line on a link belongs to one of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import AgentStatus, EventType
from agent.pipeline.schema import CELL, COUNTERS, DAY, LINK_ATTRIBUTES, MISSED_HEARTBEATS, NAMELESS, USUAL_INTERVAL
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


_COMPARED: Final = ("ts", "seq", "status", "type", "told_in", "backlog", "interval", "lag_is_critical", *COUNTERS)
_COMPARED_IN_DAY: Final = ("silent", "first", "life", "named", "attributes", "measured")


def thin(lines: DataFrame) -> DataFrame:
    """Adds `cell_backlog`, the highest of an agent, link and cell; `silent`: heartbeats are missing before it; `first`:
    it is the first of its cell; `lines`, with the first: their number; and `unbroken`, for settled days."""
    rest = [name for name in lines.columns if name not in _COMPARED]
    # One number sorts much faster than five texts, and a struct is copied as a whole, columns one by one.
    packed = lines.select(
        fn.xxhash64("agent", "cell", "line").alias("key"),
        fn.xxhash64("group", "link").alias("reporter"),
        "ts",
        "seq",
        fn.struct(*_COMPARED).alias("this"),
        fn.struct(*rest).alias("rest"),
    )
    # Both windows use one exchange and one sort.
    by_reporter = Window.partitionBy("key", "reporter")
    ordered = by_reporter.orderBy("ts", "seq")
    neighbours = packed.repartition("key").withColumns(
        {
            "before": fn.lag("this").over(ordered),
            "after": fn.lead("this").over(ordered),
            "cell_backlog": fn.max("this.backlog").over(by_reporter),
            "all": fn.count(fn.lit(1)).over(by_reporter),
        }
    )
    by_agent = Window.partitionBy("key")
    absences = fn.flatten(fn.collect_list(_absences()).over(by_agent))
    with_absences = neighbours.withColumns({"absences": absences, "has_own": fn.max(_is_own()).over(by_agent)})
    changes = _edge("before", "this") | _edge("this", "after") | _matters_by_itself()
    kept = with_absences.where(changes | fn.col("rest.why").isNotNull() | (~_is_own() & _near_an_absence()))
    first = fn.col("before").isNull()
    return kept.select(
        "this.*",
        "rest.*",
        "cell_backlog",
        fn.coalesce(_silent("before", "this"), fn.lit(False)).alias("silent"),
        first.alias("first"),
        fn.when(first, fn.col("all")).otherwise(0).alias("lines"),
        fn.lit(False).alias("unbroken"),
    )


def _is_own() -> Column:
    """True for a line that an agent wrote about itself."""
    return fn.coalesce(fn.col("this")["type"] == EventType.AGENT, fn.lit(False))


def _absences() -> Column:
    """The times in which the agent may have been away, as one of its own lines shows: lives begin and end there. An
    agent that doesn't know its group is in the partition of all groups, so such a line counts by itself."""
    this, before, after, group = fn.col("this"), fn.col("before"), fn.col("after"), fn.col("rest")["group"]
    start = fn.col("rest")["cell"] * CELL
    patience = MISSED_HEARTBEATS * fn.coalesce(this["interval"], fn.lit(0))

    def between(since: Column, until: Column, condition: Column) -> Column:
        span = fn.struct(group.alias("group"), since.alias("since"), until.alias("until"))
        return fn.when(fn.coalesce(condition, fn.lit(False)), span)

    by_itself = (this["status"] != AgentStatus.HEARTBEAT) | group.isNull() | (this["interval"] != before["interval"])
    spans = fn.array(
        between(this["ts"], this["ts"], by_itself),
        between(before["ts"], this["ts"], _silent("before", "this")),
        between(start, this["ts"], before.isNull() & (this["ts"] - start > patience)),
        between(this["ts"], start + CELL, after.isNull() & (start + CELL - this["ts"] > patience)),
    )
    found = fn.array_compact(spans)
    return fn.when(_is_own() & (fn.size(found) > 0), found)


def _near_an_absence() -> Column:
    """True for a line that is the last before an absence, within it, or the first after it."""
    since = fn.coalesce(fn.col("before")["ts"], fn.lit(0))
    until = fn.coalesce(fn.col("after")["ts"], fn.lit(2**62))

    def near(span: Column) -> Column:
        its_own = span["group"].isNull() | (span["group"] == fn.col("rest")["group"])
        return its_own & (span["since"] <= until) & (span["until"] >= since)

    return ~fn.col("has_own") | ((fn.size("absences") > 0) & fn.exists("absences", near))


def _edge(before: str, after: str) -> Column:
    """True if something changed or is missing between two lines, or one of them doesn't exist."""
    return _differs(before, after) | fn.coalesce(_silent(before, after), fn.lit(False))


def _differs(before: str, after: str) -> Column:
    """True if one of two lines doesn't exist, or if they differ in type, status, lag, run or interval, a counter fell,
    or their numbers are out of order."""
    first, second = fn.col(before), fn.col(after)
    changed = (first["status"] != second["status"]) | (first["type"] != second["type"])
    of_lag = ~first["lag_is_critical"].eqNullSafe(second["lag_is_critical"])
    # Null on a link's lines.
    another_run = (first["told_in"] != second["told_in"]) | (first["interval"] != second["interval"])
    disordered = second["seq"] < first["seq"]
    fell = fn.greatest(*(first[counter] - second[counter] for counter in COUNTERS)) > 0
    return fn.coalesce(changed | of_lag | disordered | fell, fn.lit(True)) | fn.coalesce(another_run, fn.lit(False))


def _silent(before: str, after: str) -> Column:
    """True if three heartbeats of an agent are missing between two of its lines."""
    return fn.col(after)["ts"] - fn.col(before)["ts"] > MISSED_HEARTBEATS * fn.col(before)["interval"]


def _matters_by_itself() -> Column:
    """Lines to keep in any case: a peak of the backlog while messages don't flow, and an agent's own lines except
    heartbeats."""
    this, none = fn.col("this"), fn.lit(-1)
    backlog = this["backlog"]
    rose = backlog > fn.coalesce(fn.col("before")["backlog"], none)
    falls = backlog >= fn.coalesce(fn.col("after")["backlog"], none)
    of_agent = (this["type"] == EventType.AGENT) & (this["status"] != AgentStatus.HEARTBEAT)
    return fn.coalesce(rose & falls & (this["status"] != "running"), fn.lit(False)) | of_agent


def settled(lines: DataFrame, within: Bounds) -> DataFrame:
    """Adds `day`, and sets `unbroken`: between this line and the next were others with the same status, none late."""
    own = with_groups(lines.where(fn.col("type") == EventType.AGENT), into="reporter")
    of_links = with_lives(lines, lives(lines, within)).withColumn("reporter", fn.col("group"))
    columns = [name for name in lines.columns if name not in ("interval", "told_in")]  # of its own lines only
    both = own.unionByName(of_links.select(*columns, "reporter", "life"), allowMissingColumns=True)
    return _few_of_day(both, lines.columns)


def _few_of_day(reported: DataFrame, names: list[str]) -> DataFrame:
    rest = [name for name in names if name not in (*_COMPARED, *_COMPARED_IN_DAY, "unbroken")]
    packed = reported.withColumns(
        {"attributes": fn.xxhash64(*LINK_ATTRIBUTES), "measured": measured(), "named": fn.col("group")}
    ).select(
        fn.expr(f"cell div {DAY}").alias("day"),
        "reporter",
        fn.struct(*_COMPARED, *_COMPARED_IN_DAY).alias("this"),
        fn.struct(*rest).alias("rest"),
    )
    ordered = Window.partitionBy("day", "reporter", "rest.agent", "rest.link").orderBy("this.ts", "this.seq")
    neighbours = packed.withColumns({"before": fn.lag("this").over(ordered), "after": fn.lead("this").over(ordered)})
    kept = _day_edge("before", "this") | _day_edge("this", "after") | _matters_by_itself()
    judged = neighbours.withColumn("kept", kept).withColumn("unbroken", ~fn.lead("kept", 1, True).over(ordered))
    return judged.where("kept").select(
        *(f"this.{name}" for name in _COMPARED),
        "rest.*",
        fn.coalesce(_silent_in_day("before", "this"), fn.lit(False)).alias("silent"),
        fn.col("before").isNull().alias("first"),
        "unbroken",
        "day",
    )


def _day_edge(before: str, after: str) -> Column:
    """True at an edge as for `_edge`, for lines that may be far apart: also between lines of another life, group or
    description, and before a late one."""
    first, second = fn.col(before), fn.col(after)
    another = (
        ~first["life"].eqNullSafe(second["life"])
        | ~first["named"].eqNullSafe(second["named"])
        | (first["attributes"] != second["attributes"])
        | (first["measured"] != second["measured"])
    )
    late = (first["type"] != EventType.AGENT) & (second["ts"] - first["ts"] > CELL)
    return _differs(before, after) | fn.coalesce(another | late | _silent_in_day(before, after), fn.lit(False))


def _silent_in_day(before: str, after: str) -> Column:
    """True if heartbeats are missing, as for lives: within a cell by its own lines, at its border by the last line
    before it."""
    first, second = fn.col(before), fn.col(after)
    patience = MISSED_HEARTBEATS * fn.coalesce(first["interval"], fn.lit(USUAL_INTERVAL))
    missing = (second["silent"] | second["first"]) & (second["ts"] - first["ts"] > patience)
    return (second["type"] == EventType.AGENT) & missing


def measured() -> Column:
    """True for a line that has transfer times."""
    return fn.coalesce(fn.size("transfer.count") == fn.size("transfer.le") + 1, fn.lit(False))
