"""Text files on whatever file system Spark is told to use, and tables replaced by date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
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


def check_inputs(spark: SparkSession, inputs: Sequence[str]) -> None:
    """That there is something to read, as far as the first finished file tells."""
    found = [_has_lines(spark, path) for path in inputs]
    if not any(found):
        raise CannotStartError(
            f"--input {' '.join(inputs)}: no finished file (*.jsonl) is there; give what agents export into, and wait "
            "until they have finished one (status-export.rotate)"
        )


def _has_lines(spark: SparkSession, path: str) -> bool:
    try:
        system = _system(spark, path)
        places = system.globStatus(_path(spark, path)) or []
        if not places:
            raise CannotStartError(f"--input {path}: is not there; give a directory that agents export into")
        return any(_ends_in_lines(system.listFiles(place.getPath(), True)) for place in places)
    except Py4JJavaError as error:
        raise CannotStartError(f"--input {path}: can't be read: {_told(error)}") from error


def _ends_in_lines(names: Any) -> bool:
    while names.hasNext():
        if names.next().getPath().getName().endswith(".jsonl"):
            return True
    return False


def check_output(spark: SparkSession, output: str) -> None:
    """Before hours of work that couldn't be kept."""
    probe = f"{output}/_writable"
    try:
        write_text(spark, probe, "")
        _system(spark, probe).delete(_path(spark, probe), False)
    except Py4JJavaError as error:
        raise CannotStartError(
            f"--output {output}: can't be written: {_told(error)}; give a directory that can"
        ) from error


def _told(error: Py4JJavaError) -> str:
    exception = error.java_exception
    return f"{exception.getClass().getSimpleName()}: {exception.getMessage()}".splitlines()[0]


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
