"""How Spark executes plans: for few lines, compiling them takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession

Keep = Callable[[DataFrame], DataFrame]

PER_TASK: Final = 200_000
"""Remaining lines per task: a task's sort fits into a gigabyte."""
INTERPRETED: Final = 500_000
"""Up to this many, plans are interpreted: with 66,000 that takes two thirds of the time, with 330,000 five sixths."""
REPLANNED: Final = 5_000_000
"""From this many on, adaptive execution replans after each stage. Chosen, not measured."""

READ_PER_TASK: Final = 256 * 2**20
"""Bytes of JSON whose lines one task sorts, in memory: for two tasks in 2 GiB."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PLANNED_ONCE: Final = {"spark.sql.adaptive.enabled": "false"}
_DIRECTORIES_LISTED_AT_ONCE: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""For fewer, a direct request takes less time than making tasks of it."""
_WITHOUT_COMPILER: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def suited_to(spark: SparkSession, *, rows: int) -> Iterator[Keep]:
    """A context for work on this many rows; returns how to keep data that is used several times."""
    needed = max(spark.sparkContext.defaultParallelism, rows // PER_TASK)
    wanted = {_PARTITIONS: str(min(_partitions(spark) or needed, needed))}
    wanted |= _PLANNED_ONCE if rows < REPLANNED else {}
    wanted |= _WITHOUT_COMPILER if rows < INTERPRETED else {}
    with _set(spark, wanted), _kept(short_of_plans=_is_alone(spark) and rows < INTERPRETED) as keep:
        yield keep


@contextmanager
def _kept(*, short_of_plans: bool) -> Iterator[Keep]:
    """If planning is most of the work, kept data isn't planned again. It can't be recomputed either, so this is only
    for Spark in one process, which can't lose a part of its data."""
    if short_of_plans:
        yield lambda table: table.localCheckpoint(eager=False)
        return
    with ExitStack() as kept:

        def persist(table: DataFrame) -> DataFrame:
            kept.callback(table.unpersist)
            return table.persist()

        yield persist


@contextmanager
def suited_to_reading(spark: SparkSession, *, size: int) -> Iterator[None]:
    """A context for sorting this many bytes of lines, with more tasks than cores if necessary."""
    with _set(spark, {_PARTITIONS: str(max(_partitions(spark), size // READ_PER_TASK))}):
        yield


def suit_listing(spark: SparkSession) -> None:
    """For the session. A table is listed some twenty times in a run, each time all its dates."""
    spark.conf.set(_DIRECTORIES_LISTED_AT_ONCE, "10000" if _is_alone(spark) else "128")


def _is_alone(spark: SparkSession) -> bool:
    """Whether all tasks run in this process, beside the driver."""
    return str(spark.sparkContext.master).startswith("local")


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
