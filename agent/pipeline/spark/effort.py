"""How Spark goes about the tables: of few lines, compiling plans takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession

Keep = Callable[[DataFrame], DataFrame]

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
_FILES_ASKED_FOR_AT_ONCE: Final = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "128"}
"""Of fewer, asking takes less time than making tasks of it."""
_WITHOUT_COMPILER: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def suited_to(spark: SparkSession, *, rows: int) -> Iterator[Keep]:
    """Lasts as long as the work on so many rows, and tells how to keep what several things are made of."""
    needed = max(spark.sparkContext.defaultParallelism, rows // PER_TASK)
    wanted = {_PARTITIONS: str(min(_partitions(spark) or needed, needed))}
    wanted |= _PLANNED_ONCE if rows < REPLANNED else {}
    wanted |= _WITHOUT_COMPILER if rows < INTERPRETED else {}
    alone = str(spark.sparkContext.master).startswith("local")
    with _set(spark, wanted), _kept(short_of_plans=alone and rows < INTERPRETED) as keep:
        yield keep


@contextmanager
def _kept(*, short_of_plans: bool) -> Iterator[Keep]:
    """Where planning is most of the work, what was kept isn't planned again; it can't be made again either, so that is
    for Spark in one process, which loses nothing but everything."""
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
    """Lasts as long as so many bytes of lines are sorted, however many more there are than cores."""
    wanted = {_PARTITIONS: str(max(_partitions(spark), size // READ_PER_TASK)), **_FILES_ASKED_FOR_AT_ONCE}
    with _set(spark, wanted):
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
