"""Lines of the export, each accepted or rejected; no line causes an error."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.core.export_event import SCHEMA, AgentStatus, EventType
from agent.pipeline.schema import BROKEN_LINE, BUCKETS, CELL, COUNTERS, INPUT, SECOND, TRAITS

LATER = "later schema"
MALFORMED = "malformed"
INCOMPLETE = "incomplete"
UNTIMELY = "impossible time"
BAD = (MALFORMED, INCOMPLETE, UNTIMELY)
_RUN = r"([^/]*)-[0-9]+\.jsonl$"
MOST = 2**53
"""No counter gets this high, and sums stay within 64 bits."""
SELDOM = 24 * 3600
"""Seconds; an agent with less than daily heartbeats can't be distinguished from a dead one."""
OLDEST = "2020-01-01"
"""No agent existed before; without this limit a clock that was never set would make a window of half a century."""


def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The contents of these files."""
    reader = spark.read.schema(INPUT).option("columnNameOfCorruptRecord", BROKEN_LINE)
    return judged(reader.json(list(paths)), file=fn.col("_metadata.file_path"))


def judged(lines: DataFrame, *, file: Column) -> DataFrame:
    """Adds `why`: null for an accepted line, else why it is rejected; and selects the columns that tables need."""
    rejected = fn.col("why").isNotNull()
    # Computed once and referenced by name: otherwise Spark would parse the expression again in each column.
    return lines.withColumns({"why": _why(), "file": file}).select(
        "why",
        fn.when(rejected, fn.coalesce(fn.col(BROKEN_LINE), _what_is_known())).alias("line"),
        fn.when(rejected, fn.col("file")).alias("file"),
        fn.when(rejected, fn.col("schema")).alias("schema"),
        # An agent that has just started may not know its group: its later lines show it, in any file.
        fn.coalesce("group", "cluster", fn.when(fn.col("type") != EventType.AGENT, fn.col("agent"))).alias("group"),
        "agent",
        "link",
        "type",
        # The names of all files of one run of an agent differ only in their numbers.
        fn.when(fn.col("type") == EventType.AGENT, fn.regexp_extract("file", _RUN, 1)).alias("told_in"),
        fn.unix_micros("ts").alias("ts"),
        # A cell includes its end and not its start, because a counter's increase happened before it was read.
        fn.expr(f"(unix_micros(ts) - 1) div {CELL}").alias("cell"),
        "seq",
        "status",
        "reason",
        "error",
        *TRAITS,
        *(fn.coalesce(fn.col(counter), fn.lit(0)).alias(counter) for counter in COUNTERS),
        "backlog",
        "transfer",
        fn.when(~rejected, fn.col("interval") * SECOND).cast("bigint").alias("interval"),
    )


def _why() -> Column:
    link_statuses, agent_statuses = list(BUCKETS), [status.value for status in AgentStatus]
    kind, status = fn.col("type"), fn.col("status")
    of_agent = (kind == EventType.AGENT) & status.isin(agent_statuses)
    of_link = (
        kind.isin(EventType.TRANSITION.value, EventType.SAMPLE.value)
        & status.isin(link_statuses)
        & fn.col("link").isNotNull()
    )
    placed = fn.col("ts").isNotNull() & fn.col("seq").isNotNull() & fn.col("agent").isNotNull()
    numbers, zero = (*COUNTERS, "backlog"), fn.lit(0)
    believable = (
        (fn.least(*numbers, zero) >= 0)
        & (fn.greatest(*numbers, zero) <= MOST)
        & fn.coalesce("interval", zero).between(0, SELDOM)
    )
    complete = (fn.col("schema") == SCHEMA) & placed & believable & (of_agent | of_link)
    return (
        fn.when(fn.col("schema") > SCHEMA, LATER)
        .when(fn.col(BROKEN_LINE).isNotNull(), MALFORMED)
        .when(~fn.coalesce(complete, fn.lit(False)), INCOMPLETE)
        .when(
            (fn.col("ts") < fn.lit(OLDEST)) | (fn.col("ts") > fn.current_timestamp() + fn.expr("interval 1 day")),
            UNTIMELY,
        )
    )


def _what_is_known() -> Column:
    return fn.to_json(fn.struct("schema", "type", "ts", "seq", "agent", "link", "status"))
