"""Text files on whatever file system Spark is told to use, and tables replaced by date."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from agent.pipeline.schema import TABLES


def write_table(table: DataFrame, name: str, *, output: str, whole: bool) -> None:
    """`whole` replaces all of the table, else its dates that are in these rows."""
    columns = [fn.col(f"`{field.name}`").cast(field.dataType) for field in _columns(name)]
    (
        table.select(*columns)
        .repartition("date")
        .write.option("partitionOverwriteMode", "static" if whole else "dynamic")
        .partitionBy("date")
        .mode("overwrite")
        .parquet(f"{output}/{name}")
    )


def _columns(name: str) -> StructType:
    return cast("StructType", StructType.fromDDL(TABLES[name]))


def read_table(spark: SparkSession, name: str, *, output: str) -> DataFrame:
    return spark.read.schema(TABLES[name]).parquet(f"{output}/{name}")


def read_text(spark: SparkSession, path: str) -> str:
    """Small files only: objectives."""
    row = spark.read.option("wholetext", True).text(path).first()
    return str(row[0]) if row else ""


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """At once: a reader sees the old file or the new one."""
    hadoop: Any = spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]  # noqa: SLF001 - Spark's Python has no other way to a file system
    part, whole = hadoop.Path(f"{path}.part"), hadoop.Path(path)
    system = whole.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    stream = system.create(part, True)
    try:
        stream.write(text.encode())
    finally:
        stream.close()
    system.delete(whole, False)
    system.rename(part, whole)
