"""What the job is doing, in words: Spark's own pages and whoever follows it show them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from agent.pipeline.schema import TABLES

READ: Final = "read"
TELL: Final = "tell"
SETTLE: Final = "settle"
STEPS: Final = {
    READ: "reading the lines",
    **{name: f"making {name}" for name in TABLES},
    TELL: "writing the report",
    SETTLE: "keeping what later reports need",
}


def begin(spark: SparkSession, step: str) -> None:
    """Everything that Spark does from here on belongs to that step."""
    spark.sparkContext.setJobGroup(step, STEPS[step])
