"""The current step of the job, in words: shown by Spark's own pages and by the progress display."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from agent.pipeline.schema import TABLES

READ: Final = "read"
TELL: Final = "tell"
SETTLE: Final = "settle"
COMPACT: Final = "compact"
STEPS: Final = {
    READ: "reading the lines",
    **{name: f"making {name}" for name in TABLES},
    TELL: "writing the report",
    SETTLE: "keeping what later reports need",
    COMPACT: "making few files of many",
}


def begin(spark: SparkSession, step: str) -> None:
    """Assigns everything that Spark does from now on to that step."""
    spark.sparkContext.setJobGroup(step, STEPS[step])
