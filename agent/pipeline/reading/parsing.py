"""Lines of the export, each accepted or rejected; no line causes an error."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.core.export_event import ACCOUNTED_SINCE, SCHEMA, AgentStatus, EventType, StandbyVerdict
from agent.pipeline.schema import BROKEN_LINE, BUCKETS, CAUSE, CELL, COUNTERS, INPUT, LINK_ATTRIBUTES, SECOND, STANDBY

LATER = "later schema"
MALFORMED = "malformed"
INCOMPLETE = "incomplete"
UNTIMELY = "impossible time"
BAD = (MALFORMED, INCOMPLETE, UNTIMELY)
_MAYBE_SEVERAL = r"\}\s*(?:[^\s,}\]]|,\s*(?:\{|$))"
"""Found in strings too, for example in an error that quotes JSON."""
_RUN_OF_FILE = r"([^/]*)-[0-9]+\.jsonl$"
HIGHEST_COUNTER = 2**53
"""No counter gets this high, and sums stay within 64 bits."""
LONGEST_INTERVAL = 24 * 3600
"""Seconds; an agent with less than daily heartbeats can't be distinguished from a dead one."""
EARLIEST = "2020-01-01"
"""No agent existed before; without this limit a clock that was never set would make a window of half a century."""


def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The contents of these files: a row for each line that isn't blank. Spark's own reader of JSON would make none of
    `[]`, two of an array, and one of two objects."""
    lines = spark.read.text(list(paths)).select("value", fn.col("_metadata.file_path").alias("path"))
    parsed = fn.from_json("value", INPUT, {"columnNameOfCorruptRecord": BROKEN_LINE})
    rows = lines.where(fn.trim("value") != "").select("path", "value", parsed.alias("parsed"))
    is_no_object = fn.col(f"parsed.{BROKEN_LINE}").isNotNull() | fn.col("parsed").isNull()
    broken = fn.when(is_no_object | _holds_several() | ~fn.is_valid_utf8("value"), fn.col("value"))
    return checked(rows.select("parsed.*", "path", broken.alias("broken")), file=fn.col("path"))


def _holds_several() -> Column:
    """True if something follows the object on its line; the exact check is only for lines that look like it."""
    among_others = fn.from_json(fn.concat(fn.lit("["), "value", fn.lit("]")), "array<string>")
    several = fn.coalesce(fn.size(among_others) != 1, fn.lit(True))
    return fn.when(fn.col("value").rlike(_MAYBE_SEVERAL), several).otherwise(fn.lit(False))


def checked(lines: DataFrame, *, file: Column) -> DataFrame:
    """Adds `why`: null for an accepted line, else why it is rejected; and selects the columns that tables need."""
    rejected = fn.col("why").isNotNull()
    known = fn.to_json(fn.struct("schema", "type", "ts", "seq", "agent", "link", "status"))
    # Computed once and referenced by name: otherwise Spark would parse the expression again in each column.
    return lines.withColumns({"why": _why(), "file": file}).select(
        "why",
        # Other programs refuse a table with bytes that are no UTF-8.
        fn.when(rejected, fn.coalesce(fn.make_valid_utf8("broken"), known)).alias("line"),
        fn.when(rejected, fn.col("file")).alias("file"),
        fn.when(rejected, fn.col("schema")).alias("schema"),
        # An agent that has just started may not know its group: its later lines show it, in any file.
        fn.coalesce("group", "cluster", fn.when(fn.col("type") != EventType.AGENT, fn.col("agent"))).alias("group"),
        *(
            "agent",
            fn.when(fn.col("type") == EventType.STANDBY, STANDBY).otherwise(fn.col("link")).alias("link"),
            "type",
        ),
        # The names of all files of one run of an agent differ only in their numbers.
        fn.when(fn.col("type") == EventType.AGENT, fn.regexp_extract("file", _RUN_OF_FILE, 1)).alias("told_in"),
        fn.unix_micros("ts").alias("ts"),
        # A cell includes its end and not its start, because a counter's increase happened before it was read.
        fn.expr(f"(unix_micros(ts) - 1) div {CELL}").alias("cell"),
        *("seq", "status", *CAUSE),
        *LINK_ATTRIBUTES,
        *(fn.coalesce(fn.col(counter), fn.lit(0)).alias(counter) for counter in COUNTERS),
        fn.when(fn.col("schema") >= ACCOUNTED_SINCE, fn.coalesce("unsettled", fn.lit(0))).alias("unsettled"),
        fn.coalesce("growth", fn.lit(0)).alias("growth"),
        *("waiting", "backlog", "lag_is_critical", "transfer"),
        fn.when(~rejected, fn.col("interval") * SECOND).cast("bigint").alias("interval"),
        "moves_from",
    )


def _why() -> Column:
    link_statuses, agent_statuses = list(BUCKETS), [status.value for status in AgentStatus]
    kind, status = fn.col("type"), fn.col("status")
    of_agent = (kind == EventType.AGENT) & status.isin(agent_statuses)
    of_link = kind.isin(EventType.TRANSITION.value, EventType.SAMPLE.value) & status.isin(link_statuses)
    of_link &= fn.col("link").isNotNull()
    of_standby = (kind == EventType.STANDBY) & status.isin([verdict.value for verdict in StandbyVerdict])
    placed = fn.col("ts").isNotNull() & fn.col("seq").isNotNull() & fn.col("agent").isNotNull()
    numbers, zero = (*COUNTERS, "unsettled", "waiting", "backlog"), fn.lit(0)
    plausible = (
        (fn.least(*numbers, zero) >= 0)
        & (fn.greatest(*numbers, zero) <= HIGHEST_COUNTER)
        & fn.coalesce("growth", zero).between(-HIGHEST_COUNTER, HIGHEST_COUNTER)
        & fn.coalesce("interval", zero).between(0, LONGEST_INTERVAL)
    )
    complete = fn.col("schema").between(1, SCHEMA) & placed & plausible & (of_agent | of_link | of_standby)
    tomorrow = fn.current_timestamp() + fn.expr("interval 1 day")
    return (
        fn.when(fn.col("schema") > SCHEMA, LATER)
        .when(fn.col("broken").isNotNull(), MALFORMED)
        .when(~fn.coalesce(complete, fn.lit(False)), INCOMPLETE)
        .when((fn.col("ts") < fn.lit(EARLIEST)) | (fn.col("ts") > tomorrow), UNTIMELY)
    )
