"""The tables in a few numbers, for programs: `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.availability import percent
from agent.pipeline.periods import EPOCH
from agent.pipeline.schema import LINK, VERSION, Bucket
from agent.pipeline.window import Bounds

WORST = 10


def summary(tables: Mapping[str, DataFrame], lines: Mapping[str, int], within: Bounds) -> dict[str, Any]:
    days = tables["availability"].where(fn.col("period") == "day")
    return {
        "version": VERSION,
        "window": {"start": _instant(within.start), "end": _instant(within.end)},
        "lines": dict(lines),
        **_rows(days.agg(fn.count_distinct(*LINK).alias("links"), *_buckets()))[0],
        **_rows(tables["traffic"].agg(fn.coalesce(fn.sum("messages"), fn.lit(0)).alias("messages")))[0],
        **_rows(
            tables["incidents"].agg(
                fn.count("link").alias("incidents"),
                fn.count_if("open").alias("open_incidents"),
                fn.count_distinct("outage").alias("outages"),
            )
        )[0],
        "worst_links": _rows(_worst(days)),
    }


def _buckets() -> list[Column]:
    sums = [fn.coalesce(fn.sum(f"{bucket}_seconds"), fn.lit(0)).alias(f"{bucket}_seconds") for bucket in Bucket]
    return [*sums, _available()]


def _available() -> Column:
    flowing = fn.sum(fn.col("up_seconds") + fn.col("degraded_seconds") + fn.col("down_seconds"))
    return percent(fn.sum("up_seconds").cast("double"), flowing.cast("double")).alias("availability_percent")


def _worst(days: DataFrame) -> DataFrame:
    by_link = days.groupBy(*LINK).agg(
        fn.first("name").alias("name"), fn.sum("down_seconds").alias("down_seconds"), _available()
    )
    return by_link.where(fn.col("availability_percent") < 100).orderBy("availability_percent", *LINK).limit(WORST)


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    """Of aggregates and top lists only: they are small whatever the data."""
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in found.collect()]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _instant(moment: int) -> str:
    return (EPOCH + timedelta(microseconds=moment)).isoformat(timespec="microseconds").replace("+00:00", "Z")
