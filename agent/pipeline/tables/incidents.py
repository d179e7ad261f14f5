"""From intervals to incidents: outages of links, and their grouping into one outage of something the links share."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.pipeline.schema import CAUSE, LINK, SECOND, Bucket
from agent.pipeline.window import Bounds

SIMULTANEOUS = 60 * SECOND
"""Links that fail within this of each other may have failed together."""
MANY = 3
"""This many links are no coincidence."""


def outages(found: DataFrame, *, merge_gap: int) -> DataFrame:
    """Outages, each from a failure until the link is no longer down; those with at most `merge_gap` between them are
    one outage. A start that succeeds at once is no failure: it neither begins an outage nor continues one."""
    by_time = Window.partitionBy(*LINK).orderBy("start")
    down, flowed = fn.col("bucket") == Bucket.DOWN, fn.col("bucket").isin(Bucket.UP.value, Bucket.DEGRADED.value)
    failed = fn.col("status").isin("backoff", "invalid")

    def latest(value: str, condition: Column) -> Column:
        return fn.coalesce(fn.last(fn.when(condition, fn.col(value)), ignorenulls=True).over(by_time), fn.lit(-1))

    moments = {"failed": latest("start", failed), "well": latest("start", ~down), "flowed": latest("end", flowed)}
    gap = fn.col("start") - fn.col("ended")
    return (
        found.withColumns(moments)
        .where(down & (fn.col("failed") > fn.col("well")))
        .withColumn("ended", fn.lag("end").over(by_time))
        .withColumn("number", fn.sum(fn.coalesce(gap > merge_gap, fn.lit(True)).cast("int")).over(by_time))
        .groupBy(*LINK, "number")
        .agg(
            fn.min("start").alias("start"),
            fn.max("end").alias("end"),
            fn.sum(fn.col("end") - fn.col("start")).alias("down"),
            # Attempts follow each other without a gap; a flap is a link that was up in between.
            fn.count_if((fn.col("flowed") > fn.col("ended")) & (gap <= merge_gap)).alias("flaps"),
            fn.min_by(fn.struct("status", *CAUSE, "agent"), "start").alias("details"),
            fn.max("backlog").alias("peak_backlog"),
        )
    )


def incidents(down: DataFrame, within: Bounds) -> DataFrame:
    return down.select(
        *LINK, "start", "end", (fn.col("end") >= within.end).alias("open"), "down", "flaps", "details.*", "peak_backlog"
    )


def with_outages(found: DataFrame, links: DataFrame) -> DataFrame:
    """Adds the attributes of each link, and the outage it was part of if many links failed together."""
    named = found.join(links, [*LINK], "left").withColumns(
        {"of_upstream": fn.coalesce("upstream_cluster", "uri"), "of_agent": fn.concat_ws("/", "group", "agent")}
    )
    marked = _with_simultaneous(_with_simultaneous(named, "of_upstream"), "of_agent")
    by_upstream = (fn.col("of_upstream_links") >= MANY) & (fn.col("of_upstream_links") >= fn.col("of_agent_links"))
    by_agent = fn.col("of_agent_links") >= MANY

    def either(of_upstream: Column, of_agent: Column) -> Column:
        return fn.when(by_upstream, of_upstream).when(by_agent, of_agent)

    return marked.withColumns(
        {
            "outage_scope": either(fn.lit("upstream"), fn.lit("agent")),
            "outage_name": either(fn.col("of_upstream"), fn.col("of_agent")),
            "outage_links": either(fn.col("of_upstream_links"), fn.col("of_agent_links")),
            "outage": either(fn.col("of_upstream_id"), fn.col("of_agent_id")),
        }
    )


def _with_simultaneous(found: DataFrame, by: str) -> DataFrame:
    """Adds the number of links that share `by` and failed at about the same time, and an id."""
    by_time = Window.partitionBy(by).orderBy("start", *LINK)
    apart = fn.coalesce(fn.col("start") - fn.lag("start").over(by_time) > SIMULTANEOUS, fn.lit(True))
    numbered = found.withColumn("apart", apart.cast("int")).withColumn("wave", fn.sum("apart").over(by_time))
    wave = Window.partitionBy(by, "wave")
    many = fn.size(fn.collect_set(fn.struct(*LINK)).over(wave)).cast("bigint")
    named = fn.lower(fn.hex(fn.xxhash64(fn.lit(by), fn.col(by), fn.min("start").over(wave))))
    return numbered.withColumns(
        {f"{by}_links": fn.when(fn.col(by).isNotNull(), many).otherwise(0), f"{by}_id": named}
    ).drop("apart", "wave")
