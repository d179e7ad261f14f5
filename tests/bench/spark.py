"""One thing done by a Spark of its own, and what it took: `count DIR`, as Spark usually is, or `report DIR OUTPUT`."""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from agent.pipeline.job import run
from agent.pipeline.options import parse
from agent.pipeline.schema import BROKEN_LINE, INPUT
from agent.pipeline.spark import session
from tests.bench.process import cpu_seconds, memory_mib


def main(what: str, directory: str, *more: str) -> None:
    spark = SparkSession.builder.getOrCreate() if what == "count" else session(None)
    spark.sparkContext.setLogLevel("ERROR")
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # noqa: SLF001 - no other way leads there
    before, began = cpu_seconds(java), time.monotonic()
    if what == "count":
        lines = count(spark, directory)
    else:
        lines = run(spark, parse(["--input", directory, "--output", *more]))["lines"]["read"]
    seconds, cpu = time.monotonic() - began, cpu_seconds(java) - before
    print(json.dumps({"lines": lines, "seconds": seconds, "cpu": cpu, "peak": memory_mib(java, peak=True)}))


def count(spark: SparkSession, directory: str) -> int:
    """Every column, or Spark would leave out parsing what nobody asks for."""
    reader = spark.read.schema(INPUT).option("columnNameOfCorruptRecord", BROKEN_LINE)
    lines = reader.option("recursiveFileLookup", True).json(directory)
    row = lines.agg(fn.count(fn.lit(1)), *(fn.count(name) for name in lines.columns)).first()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    main(*sys.argv[1:])
