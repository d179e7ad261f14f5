"""Small tables from values of the driver, made without a Python worker: executors need no Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def table(spark: SparkSession, rows: Sequence[Mapping[str, object]], columns: str) -> DataFrame:
    """`columns` is a schema in DDL; dates are passed as text."""
    parsed = fn.from_json(fn.lit(json.dumps(rows, default=str)), f"array<struct<{columns}>>")
    return spark.range(1, numPartitions=1).select(fn.inline(parsed))
