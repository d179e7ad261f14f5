"""How Spark goes about the tables: of few lines, planning and compiling would take longer than all the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

MANY: Final = 5_000_000
"""Thinned lines from which on plans are compiled, and looked at again while they run."""
PER_TASK: Final = 50_000

_PLAIN: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@contextmanager
def suited_to(spark: SparkSession, *, rows: int) -> Iterator[None]:
    """Lasts as long as the work on so many rows."""
    partitions = "spark.sql.shuffle.partitions"
    needed = max(spark.sparkContext.defaultParallelism, rows // PER_TASK)
    wanted = {partitions: str(min(int(spark.conf.get(partitions) or needed), needed))}
    wanted |= _PLAIN if rows < MANY else {}
    before = {name: str(spark.conf.get(name)) for name in wanted}
    _set(spark, wanted)
    try:
        yield
    finally:
        _set(spark, before)


def _set(spark: SparkSession, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)
