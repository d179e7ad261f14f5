"""Lines of the export, each told good or set aside; nothing in a line is an error."""

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
"""No counter gets so far, and sums of them stay within 64 bits."""
SELDOM = 24 * 3600
"""Seconds; who heartbeats less often than daily can't be told from who is gone."""
OLDEST = "2020-01-01"
"""No agent was there before: a clock that was never set would make a window of half a century."""


def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """What those files hold."""
    reader = spark.read.schema(INPUT).option("columnNameOfCorruptRecord", BROKEN_LINE)
    return judged(reader.json(list(paths)), file=fn.col("_metadata.file_path"))


def judged(lines: DataFrame, *, file: Column) -> DataFrame:
    """Adds `why`: null for a good line, else why it is set aside; and narrows to what the tables are made of."""
    rejected = fn.col("why").isNotNull()
    # Computed once and referred to by name: Spark would take what is written out in each column apart in each of them.
    return lines.withColumns({"why": _why(), "file": file}).select(
        "why",
        fn.when(rejected, fn.coalesce(fn.col(BROKEN_LINE), _what_is_known())).alias("line"),
        fn.when(rejected, fn.col("file")).alias("file"),
        fn.when(rejected, fn.col("schema")).alias("schema"),
        # An agent that has just started may not know its group: what it says later tells it, wherever that lies.
        fn.coalesce("group", "cluster", fn.when(fn.col("type") != EventType.AGENT, fn.col("agent"))).alias("group"),
        "agent",
        "link",
        "type",
        # All files of one run of an agent are called alike but for their numbers.
        fn.when(fn.col("type") == EventType.AGENT, fn.regexp_extract("file", _RUN, 1)).alias("told_in"),
        fn.unix_micros("ts").alias("ts"),
        # A cell holds its end and not its start, as what a counter has gained was gained before it was read.
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
