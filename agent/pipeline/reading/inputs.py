"""The files that agents have finished; unfinished ones end in `.part`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline.spark.files import literally

_FINISHED: Final = "*.jsonl"
_WILD: Final = re.compile(r"([\[\]{}*?\\])")
_LISTING: Final = "path string, modificationTime timestamp, length bigint, content binary"


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """A file that has changed counts as another one; `modified` is in microseconds."""

    path: str
    length: int
    modified: int

    @property
    def pattern(self) -> str:
        """Escapes a path, because Spark interprets paths as patterns."""
        return _WILD.sub(r"\\\1", self.path)


def listed(spark: SparkSession, directories: Sequence[str]) -> frozenset[InputFile]:
    """Names only: the contents of files are not read here."""
    found = _found(spark.read).load([literally(spark, directory) for directory in directories])
    rows = found.select("path", "length", fn.unix_micros("modificationTime")).collect()
    return frozenset(InputFile(*row) for row in rows)


def followed(spark: SparkSession, directories: Sequence[str]) -> DataFrame:
    """A stream with a row for each new file."""
    # A file that arrives is new, however old it is.
    reader = _found(spark.readStream).schema(_LISTING).option("maxFileAge", "36500d")
    streams: list[DataFrame] = [reader.load(literally(spark, directory)).select("path") for directory in directories]
    return reduce(DataFrame.union, streams)


def _found(reader: Any) -> Any:
    return reader.format("binaryFile").option("recursiveFileLookup", True).option("pathGlobFilter", _FINISHED)
