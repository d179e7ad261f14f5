"""Messages, transfer times and backlogs: in total, and over time."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.model import Cost, Flow, Moment, Percentiles
from agent.pipeline.schema import SECOND

MOMENTS: Final = 120
_MINUTE: Final = 60 * SECOND
_STEPS: Final = tuple(_MINUTE * minutes for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080))
_COST: Final = ("messages", "bytes", "redelivered", "dropped", "quarantined", "returned")
_PARTS: Final = ("p50", "p95", "p99")


def step_of(length: int) -> int:
    """The finest round step with which the window fits on a chart."""
    return next(
        (step for step in _STEPS if length <= MOMENTS * step), -(-length // (MOMENTS * _STEPS[-1])) * _STEPS[-1]
    )


def flow(asked: Asked) -> Flow:
    step = step_of(asked.within.end - asked.within.start)
    rows = asked.traffic().withColumn("moment", fn.expr(f"unix_micros(start) div {step} * {step}"))
    sums = (fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in _COST)
    every = rows.agg(*sums, *_percentiles()).collect()[0]
    by_time = rows.groupBy("moment").agg(fn.sum("messages").alias("messages"), *_percentiles()).orderBy("moment")
    moments = (Moment(row["moment"], row["messages"] or 0, _transfer(row), _lag(row)) for row in by_time.collect())
    return Flow(step, Cost(**{name: every[name] for name in _COST}), _transfer(every), _lag(every), tuple(moments))


def _percentiles() -> list[Column]:
    """Transfer times of each link's five minutes are weighted by their messages; of lag, each link's peak counts
    once."""
    return [
        *(_weighed(f"transfer_{part}_seconds").alias(f"transfer_{part}") for part in _PARTS),
        fn.percentile("peak_backlog", [0.5, 0.95, 0.99]).alias("lag"),
    ]


def _weighed(name: str) -> Column:
    """Decimals, because their sum is the same in any order."""
    known = fn.when(fn.col(name).isNotNull() & (fn.col("messages") > 0), fn.col("messages"))
    product = fn.col(name).cast("decimal(18,9)") * known
    return fn.try_divide(fn.sum(product).cast("double"), fn.sum(known).cast("double"))


def _transfer(row: Any) -> Percentiles:
    return Percentiles(*(row[f"transfer_{part}"] for part in _PARTS))


def _lag(row: Any) -> Percentiles:
    return Percentiles(*(row["lag"] or ()))
