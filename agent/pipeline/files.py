"""Files on any file system that Spark is configured for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from agent.errors import CannotStartError
from agent.pipeline.schema import TABLES

_MOST: Final = 300
_WILD: Final = re.compile(r"([\[\]{}*?\\])")


def read_table(spark: SparkSession, name: str, *, output: str) -> DataFrame:
    return spark.read.schema(TABLES[name]).parquet(literal_path(spark, f"{output}/{name}"))


def columns(name: str) -> StructType:
    return cast("StructType", StructType.fromDDL(TABLES[name]))


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a small file, such as objectives."""
    row = spark.read.text(literal_path(spark, path), wholetext=True).first()
    return str(row[0]) if row else ""


def check_inputs(spark: SparkSession, inputs: Sequence[str]) -> None:
    """Checks that there is something to read, up to the first finished file."""
    found = [_has_lines(spark, path) for path in inputs]
    if not any(found):
        raise CannotStartError(
            f"--input {' '.join(inputs)}: there is no finished file (*.jsonl); give a directory that agents export to, "
            "and wait until they have finished a file (status-export.rotate)"
        )


def _has_lines(spark: SparkSession, path: str) -> bool:
    try:
        system = _system(spark, path)
        places = system.globStatus(_path(spark, literal_path(spark, path))) or []
        if not places:
            raise CannotStartError(f"--input {path}: does not exist; give a directory that agents export to")
        return any(_ends_in_lines(system.listFiles(place.getPath(), True)) for place in places)
    except Py4JJavaError as error:
        raise CannotStartError(f"--input {path}: can't be read: {_reason(error)}") from error


def escaped(path: str) -> str:
    """Spark interprets paths as patterns; this one stands for the path alone."""
    return _WILD.sub(r"\\\1", path)


def literal_path(spark: SparkSession, path: str) -> str:
    """The path as a literal if it exists: then it is no pattern, whatever characters it has."""
    return escaped(path) if _WILD.search(path) and exists(spark, path) else path


def _ends_in_lines(names: Any) -> bool:
    while names.hasNext():
        if names.next().getPath().getName().endswith(".jsonl"):
            return True
    return False


def check_output(spark: SparkSession, output: str) -> None:
    """Checks that the output can be written, before hours of work are lost."""
    probe = f"{output}/_writable"
    try:
        write_text(spark, probe, "")
        _system(spark, probe).delete(_path(spark, probe), False)
    except Py4JJavaError as error:
        raise CannotStartError(
            f"--output {output}: can't be written: {_reason(error)}; give a writable directory"
        ) from error


def _reason(error: Py4JJavaError) -> str:
    exception = error.java_exception
    return f"{exception.getClass().getSimpleName()}: {exception.getMessage()}".splitlines()[0]


_CAUSE: Final = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"^(?:[a-z_$0-9]+\.)+(\w+)")


def reason(error: Exception) -> str:
    """The innermost cause in one line. Errors of Java have the causes in their trace only."""
    if isinstance(error, Py4JJavaError):
        text, trace = str(error.java_exception), str(error)
    else:
        text, trace = str(error), getattr(error, "_stackTrace", None) or ""
    causes = _CAUSE.findall(f"{text}\n{trace}")
    first = causes[-1] if causes else next((one for one in text.splitlines() if one.strip()), type(error).__name__)
    return _CLASS.sub(r"\1", first.strip())[:_MOST]


def write_text(spark: SparkSession, path: str, text: str) -> None:
    write_parts(spark, path, [text])


def write_parts(spark: SparkSession, path: str, parts: Iterable[str]) -> None:
    """Write a file atomically: a reader sees the old file or the new one."""
    part, whole = _path(spark, f"{path}.part"), _path(spark, path)
    system = _system(spark, path)
    stream = system.create(part, True)
    try:
        for text in parts:
            stream.write(text.encode())
    finally:
        stream.close()
    rename = spark.sparkContext._jvm.org.apache.hadoop.fs.Options.Rename  # type: ignore[union-attr]  # noqa: SLF001 - as below
    how = spark.sparkContext._gateway.new_array(rename, 1)  # type: ignore[union-attr]  # noqa: SLF001 - as below
    how[0] = rename.OVERWRITE
    context = spark.sparkContext._jvm.org.apache.hadoop.fs.FileContext  # type: ignore[union-attr]  # noqa: SLF001 - as below
    context.getFileContext(whole.toUri(), spark.sparkContext._jsc.hadoopConfiguration()).rename(part, whole, how)  # noqa: SLF001 - as below


def read_small(spark: SparkSession, path: str) -> str | None:
    """The text of a small file; None if there is no such file."""
    system, whole = _system(spark, path), _path(spark, path)
    if not system.exists(whole):
        return None
    stream = system.open(whole)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def exists(spark: SparkSession, path: str) -> bool:
    return bool(_system(spark, path).exists(_path(spark, path)))


def is_local(spark: SparkSession, path: str) -> bool:
    """True if Spark finds it among the files of this machine: a path without a scheme may be on a cluster's."""
    return bool(_system(spark, path).getUri().getScheme() == "file")


def entries(spark: SparkSession, directory: str) -> list[str]:
    return [status.getPath().getName() for status in _system(spark, directory).listStatus(_path(spark, directory))]


def remove(spark: SparkSession, path: str) -> None:
    _system(spark, path).delete(_path(spark, path), True)


def remove_others(spark: SparkSession, directory: str, *, keep: Callable[[str], bool]) -> None:
    """Removes other entries of a directory, if it exists."""
    for name in entries(spark, directory) if exists(spark, directory) else ():
        if not keep(name):
            remove(spark, f"{directory}/{name}")


def _path(spark: SparkSession, path: str) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]  # noqa: SLF001 - Spark's Python has no other way to a file system


def _system(spark: SparkSession, path: str) -> Any:
    return _path(spark, path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
