"""How Spark goes about the tables: of few lines, compiling plans takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

PER_TASK: Final = 200_000
"""Lines, of those that are left: a gigabyte holds what a task sorts of them."""
INTERPRETED: Final = 500_000
"""Up to so many, plans are interpreted: of 66,000 that takes two thirds of the time, of 330,000 five sixths."""
REPLANNED: Final = 5_000_000
"""From so many on, a plan is looked at again after each of its stages. Chosen, not measured."""

READ_PER_TASK: Final = 256 * 2**20
"""Bytes of JSON whose lines one task sorts: in memory, as a task of two in 2 GiB has it."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PLANNED_ONCE: Final = {"spark.sql.adaptive.enabled": "false"}
_WITHOUT_COMPILER: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def suited_to(spark: SparkSession, *, rows: int) -> Iterator[None]:
    """Lasts as long as the work on so many rows."""
    needed = max(spark.sparkContext.defaultParallelism, rows // PER_TASK)
    wanted = {_PARTITIONS: str(min(_partitions(spark) or needed, needed))}
    wanted |= _PLANNED_ONCE if rows < REPLANNED else {}
    wanted |= _WITHOUT_COMPILER if rows < INTERPRETED else {}
    with _set(spark, wanted):
        yield


@contextmanager
def suited_to_reading(spark: SparkSession, *, size: int) -> Iterator[None]:
    """Lasts as long as so many bytes of lines are sorted, however many more there are than cores."""
    with _set(spark, {_PARTITIONS: str(max(_partitions(spark), size // READ_PER_TASK))}):
        yield


def _partitions(spark: SparkSession) -> int:
    return int(spark.conf.get(_PARTITIONS) or 0)


@contextmanager
def _set(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in wanted}
    _put(spark, wanted)
    try:
        yield
    finally:
        _put(spark, before)


def _put(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)
