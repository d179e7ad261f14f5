"""Runs `report`: with its own Spark, or with the one of `spark-submit`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from agent.errors import AgentError, CannotStartError
from agent.pipeline import before
from agent.pipeline.options import Options, parse
from agent.pipeline.reading.following import follow
from agent.pipeline.run import run
from agent.pipeline.spark import files, java
from agent.pipeline.spark.effort import suit_listing
from agent.pipeline.spark.quiet import quiet

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
    suit_listing(spark)
    return spark


def main(arguments: Sequence[str]) -> None:
    """For `spark-submit`: the same options as `federation-agent report`."""
    options = parse(arguments)
    report(options)


def report(options: Options, *, watch: Watch = nullcontext) -> dict[str, Any]:
    """Starts Spark, or joins the one it was submitted to, and reports in plain words what prevents it."""
    before.check(options)
    with before.alone(options.output):
        try:
            with quiet():
                spark = session(options.master)
        except PySparkRuntimeError as error:
            raise CannotStartError(java.what_is_wrong()) from error
        # Spark's own log of an error is hundreds of lines; the reason is shown in one.
        spark.sparkContext.setLogLevel("OFF")
        try:
            return _made(spark, options, watch)
        finally:
            spark.stop()


def _made(spark: SparkSession, options: Options, watch: Watch) -> dict[str, Any]:
    files.check_inputs(spark, options.inputs)
    files.check_output(spark, options.output)
    try:
        with watch(spark):
            return follow(spark, options) if options.streaming else run(spark, options)
    except (Py4JError, PySparkException) as error:
        raise CannotStartError(f"the report can't be made: {files.reason(error)}") from error


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AgentError as error:
        sys.exit(str(error))
