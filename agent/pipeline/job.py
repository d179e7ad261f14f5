"""`report` from its options to its end: with a Spark of its own, or under `spark-submit` as it is."""

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
"""Lasts as long as the work, and sees how far it is."""


def session(master: str | None) -> SparkSession:
    builder = SparkSession.builder.appName("federation-agent report").config("spark.ui.showConsoleProgress", False)
    builder = builder.config("spark.driver.defaultJavaOptions", java.options())
    spark = (builder if master is None else builder.master(master)).getOrCreate()
    context = spark.sparkContext
    if not context.getConf().contains("spark.sql.shuffle.partitions"):
        # Spark's own 200 suit a large cluster; on a small machine they cost more than the work in them.
        spark.conf.set("spark.sql.shuffle.partitions", 8 * context.defaultParallelism)
    return spark


def main(arguments: Sequence[str]) -> None:
    """For `spark-submit`: the same options as `federation-agent report`."""
    options = parse(arguments)
    report(options)


def report(options: Options, *, watch: Watch = nullcontext) -> dict[str, Any]:
    """Starts Spark, or joins the one it was submitted to, and tells what stands in the way in words."""
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
