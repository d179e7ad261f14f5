"""Tables by date: a date is written if its rows differ from the existing ones, and removed if it has none.

A table without rows has one file without rows: readers find its columns there.
"""

from __future__ import annotations

import operator
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.spark import files
from agent.pipeline.spark.steps import begin
from agent.pipeline.tables.dates import Dates

_NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_NO_ROWS = "date=1970-01-01"
_HALF_WRITTEN = ".spark-staging-"
"""Spark's temporary directory before dates are replaced, left behind if it is killed."""


def replace(table: DataFrame, name: str, *, output: str, dates: Dates) -> None:
    """`dates` are those that this run has made."""
    spark = table.sparkSession
    begin(spark, name)
    fields = files.columns(name)
    rows = table.select(*(fn.col(f"`{field.name}`").cast(field.dataType) for field in fields))
    rows = rows.where(dates.hold(fn.col("date")))
    if not files.exists(spark, f"{output}/{name}"):
        _write(rows, f"{output}/{name}")
        _keep_columns(rows, f"{output}/{name}")
        return
    files.remove_others(spark, f"{output}/{name}", keep=lambda entry: not entry.startswith(_HALF_WRITTEN))
    rows = rows.persist()
    existing = files.read_table(spark, name, output=output).where(dates.hold(fn.col("date")))
    before, now = _digests(existing), _digests(rows)
    differing = [day for day, digest in now.items() if before.get(day) != digest]
    if differing:
        _write(rows.where(_is_in(differing)), f"{output}/{name}")
    for day in before.keys() - now.keys():
        files.remove(spark, f"{output}/{name}/date={day or _NO_DATE}")
    _keep_columns(rows, f"{output}/{name}")
    rows.unpersist()


def _keep_columns(rows: DataFrame, path: str) -> None:
    dates = [entry for entry in files.entries(rows.sparkSession, path) if entry.startswith("date=")]
    if not dates:
        rows.limit(0).drop("date").write.mode("overwrite").parquet(f"{path}/{_NO_ROWS}")
    elif len(dates) > 1 and _NO_ROWS in dates:
        files.remove(rows.sparkSession, f"{path}/{_NO_ROWS}")


def _write(rows: DataFrame, path: str) -> None:
    writer = rows.repartition("date").write.option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("date").mode("overwrite").parquet(path)


def _digests(rows: DataFrame) -> dict[date | None, tuple[int, int, int]]:
    """The same for the same rows in any order; nulls are included explicitly, because a hash skips them."""
    values = [fn.col(f"`{name}`") for name in rows.columns]
    digest = fn.xxhash64(*values, *(value.isNull() for value in values))
    low = digest.bitwiseAND(fn.lit(0xFFFFFFFF))
    found = rows.groupBy("date").agg(fn.count(fn.lit(1)), fn.bit_xor(digest), fn.sum(low)).collect()
    return {day: (count, mixed, sums) for day, count, mixed, sums in found}


def _is_in(days: list[date | None]) -> Column:
    return reduce(operator.or_, (fn.col("date").eqNullSafe(fn.lit(day)) for day in days))
