"""How Spark goes about the tables: of few lines, compiling plans takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

PER_TASK: Final = 200_000
"""Lines, of those that are left: a gigabyte holds what a task sorts of them."""
INTERPRETED: Final = 500_000
"""Up to so many, plans are interpreted: of 66,000 that takes two thirds of the time, of 330,000 five sixths."""
REPLANNED: Final = 5_000_000
"""From so many on, a plan is looked at again after each of its stages. Chosen, not measured."""

_PLANNED_ONCE: Final = {"spark.sql.adaptive.enabled": "false"}
_WITHOUT_COMPILER: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def suited_to(spark: SparkSession, *, rows: int) -> Iterator[None]:
    """Lasts as long as the work on so many rows."""
    wanted = _settings(spark, rows)
    before = {name: str(spark.conf.get(name)) for name in wanted}
    _set(spark, wanted)
    try:
        yield
    finally:
        _set(spark, before)


def _settings(spark: SparkSession, rows: int) -> dict[str, str]:
    partitions = "spark.sql.shuffle.partitions"
    needed = max(spark.sparkContext.defaultParallelism, rows // PER_TASK)
    wanted = {partitions: str(min(int(spark.conf.get(partitions) or needed), needed))}
    wanted |= _PLANNED_ONCE if rows < REPLANNED else {}
    wanted |= _WITHOUT_COMPILER if rows < INTERPRETED else {}
    return wanted


def _set(spark: SparkSession, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)
