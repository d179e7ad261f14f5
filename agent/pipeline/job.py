"""Runs `report`: with its own Spark, or with the one of `spark-submit`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from agent.errors import AgentError, CannotStartError
from agent.pipeline.options import Options, parse
from agent.pipeline.reading.following import follow
from agent.pipeline.run import run
from agent.pipeline.spark import files, java

Watch = Callable[[SparkSession], AbstractContextManager[object]]
"""A context around the work that shows its progress."""


def session(master: str | None) -> SparkSession:
    builder = SparkSession.builder.appName("federation-agent report").config("spark.ui.showConsoleProgress", False)
    builder = builder.config("spark.driver.defaultJavaOptions", java.options())
    spark = (builder if master is None else builder.master(master)).getOrCreate()
    context = spark.sparkContext
    if not context.getConf().contains("spark.sql.shuffle.partitions"):
        # Spark's default of 200 suits a large cluster; on a small machine they cost more than the work in them.
        spark.conf.set("spark.sql.shuffle.partitions", 8 * context.defaultParallelism)
    return spark


def main(arguments: Sequence[str]) -> None:
    """For `spark-submit`: the same options as `federation-agent report`."""
    options = parse(arguments)
    report(options)


def report(options: Options, *, watch: Watch = nullcontext) -> dict[str, Any]:
    """Starts Spark, or joins the one it was submitted to, and reports in plain words what prevents it."""
    try:
        spark = session(options.master)
    except PySparkRuntimeError as error:
        raise CannotStartError(java.what_is_wrong()) from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        files.check_inputs(spark, options.inputs)
        files.check_output(spark, options.output)
        with watch(spark):
            return follow(spark, options) if options.streaming else run(spark, options)
    finally:
        spark.stop()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AgentError as error:
        sys.exit(str(error))
