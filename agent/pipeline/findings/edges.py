"""The traffic from cluster to cluster, over the whole window."""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import LONGEST, Asked, spent, spent_of
from agent.pipeline.findings.model import Edge, Edges
from agent.pipeline.schema import LINK, Bucket

_ENDS = ("upstream_cluster", "cluster")


def edges(asked: Asked, *, most: int) -> Edges:
    """The busiest pairs; among equals those with most links first."""
    ends = [fn.substring(name, 1, LONGEST).alias(name) for name in _ENDS]
    times = (
        asked.availability("day")
        .select(*ends, *LINK, *(f"{bucket}_seconds" for bucket in Bucket))
        .groupBy(*_ENDS)
        .agg(fn.count_distinct(*LINK).alias("links"), *spent())
    )
    moved = asked.traffic().select(*ends, "messages").groupBy(*_ENDS).agg(fn.sum("messages").alias("messages"))
    same = [times[name].eqNullSafe(moved[name]) for name in _ENDS]
    joined = (
        times.join(moved, same, "left")
        .select(*(times[name] for name in times.columns), fn.coalesce(moved["messages"], fn.lit(0)).alias("messages"))
        .withColumn("pairs", fn.count(fn.lit(1)).over(Window.partitionBy()))
    )
    ordered = joined.orderBy(fn.col("messages").desc(), fn.col("links").desc(), *_ENDS).limit(most).collect()
    found = (
        Edge(row["upstream_cluster"], row["cluster"], row["links"], row["messages"], spent_of(row)) for row in ordered
    )
    return Edges(ordered[0]["pairs"] if ordered else 0, tuple(found))
