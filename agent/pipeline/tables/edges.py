"""The traffic from cluster to cluster, by day."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.schema import LINK
from agent.pipeline.tables.availability import percent


def edges(available: DataFrame, passed: DataFrame) -> DataFrame:
    """From the finished tables `availability` and `traffic`; a link without known availability is never the worst."""
    ends = ("upstream_cluster", "cluster", "date")
    moved = passed.groupBy(*LINK, "date").agg(fn.sum("messages").alias("messages"), fn.sum("bytes").alias("bytes"))
    days = available.where(fn.col("period") == "day").join(moved, [*LINK, "date"], "left")
    own = fn.col("availability_percent")
    # A sum of decimals is the same in any order; a sum of doubles is not.
    flowing = fn.sum(fn.col("up_seconds") + fn.col("degraded_seconds") + fn.col("down_seconds"))
    return days.groupBy(*ends).agg(
        fn.count("link").alias("links"),
        fn.coalesce(fn.sum("messages"), fn.lit(0)).alias("messages"),
        fn.coalesce(fn.sum("bytes"), fn.lit(0)).alias("bytes"),
        percent(fn.sum("up_seconds").cast("double"), flowing.cast("double")).alias("availability_percent"),
        fn.min_by("link", fn.when(own.isNotNull(), fn.struct(own, "group", "link"))).alias("worst_link"),
        fn.min(own).alias("worst_link_availability_percent"),
    )
