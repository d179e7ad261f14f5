"""Text files on whatever file system Spark is told to use, and tables replaced by date."""

from __future__ import annotations

from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from agent.errors import CannotStartError
from agent.pipeline.schema import TABLES
from agent.pipeline.steps import begin


def write_table(table: DataFrame, name: str, *, output: str, whole: bool) -> None:
    """`whole` replaces all of the table, else its dates that are in these rows."""
    begin(table.sparkSession, name)
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


def check_output(spark: SparkSession, output: str) -> None:
    """Before hours of work that couldn't be kept."""
    probe = f"{output}/_writable"
    try:
        write_text(spark, probe, "")
        _system(spark, probe).delete(_path(spark, probe), False)
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage()).split("\n")[0]
        raise CannotStartError(f"--output {output}: can't be written: {said}; give a directory that can") from error


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """At once: a reader sees the old file or the new one."""
    part, whole = _path(spark, f"{path}.part"), _path(spark, path)
    system = _system(spark, path)
    stream = system.create(part, True)
    try:
        stream.write(text.encode())
    finally:
        stream.close()
    system.delete(whole, False)
    system.rename(part, whole)


def _path(spark: SparkSession, path: str) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]  # noqa: SLF001 - Spark's Python has no other way to a file system


def _system(spark: SparkSession, path: str) -> Any:
    return _path(spark, path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
