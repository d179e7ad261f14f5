"""The `report`: one run, or a run for each set of new files, with its own Spark or with that of `spark-submit`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from agent.errors import AgentError, CannotStartError
from agent.pipeline import files
from agent.pipeline.findings.publish import AVAILABILITY_CSV, INCIDENTS_CSV, PAGE, SUMMARY, publish
from agent.pipeline.findings.report_tables import ReportTables
from agent.pipeline.objectives import USUAL, Objective, parse_objectives
from agent.pipeline.options import Options, parse
from agent.pipeline.reading.ledger import ExistingTables
from agent.pipeline.reading.store import Store, new_files_stream
from agent.pipeline.schema import TABLES, VERSION
from agent.pipeline.spark import java_problem, quiet, session, settings_for_rows
from agent.pipeline.tables.update import Dates, extent_to_make, write_tables
from agent.pipeline.versions import Versions, local_path, only_writer
from agent.pipeline.window import bounds, first_and_last_day, micros

STORE: Final = "_lines"
CHECKPOINT: Final = "_checkpoint"

Watch = Callable[[SparkSession], AbstractContextManager[object]]
"""A context around the work that shows its progress."""


def report(options: Options, *, watch: Watch = nullcontext) -> dict[str, Any]:
    """Starts Spark, or joins the one that it was submitted to. Whatever prevents the report is an error in one line."""
    check_objectives(options)
    with only_writer(options.output):
        try:
            with quiet():
                spark = session(options.master)
        except PySparkRuntimeError as error:
            raise CannotStartError(java_problem()) from error
        # Spark's own log of an error is hundreds of lines; the reason is shown in one.
        spark.sparkContext.setLogLevel("OFF")
        try:
            return _run_with_spark(spark, options, watch)
        finally:
            spark.stop()


def _run_with_spark(spark: SparkSession, options: Options, watch: Watch) -> dict[str, Any]:
    files.check_inputs(spark, options.inputs)
    files.check_output(spark, options.output)
    try:
        with watch(spark):
            return follow(spark, options) if options.streaming else run(spark, options)
    except (Py4JError, PySparkException) as error:
        raise CannotStartError(f"the report can't be made: {files.reason(error)}") from error


def check_objectives(options: Options) -> None:
    """Checks what can be checked before Spark starts, which takes seconds: a local file. Others are read by Spark."""
    path = None if options.objectives is None else local_path(options.objectives)
    if path is None:
        return
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CannotStartError(f"--objectives {path}: can't be read: {reason}; give a YAML file") from error
    parse_objectives(text, source=str(options.objectives))


def run(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Updates the tables, `report.html` and `summary.json`, and returns the summary."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    text = None if options.objectives is None else files.read_text(spark, options.objectives)
    objectives = parse_objectives(text, source=str(options.objectives)) if text is not None else USUAL
    versions = _versions(spark, options)
    if versions is not None:
        versions.open()
    store = Store(spark, f"{options.output}/{STORE}", options.inputs)
    store.catch_up()
    read, made_of = store.ledger.content(), _fingerprint(options, objectives)
    start, end = (None if moment is None else micros(moment) for moment in (options.start, options.end))
    within = bounds(read.first, read.last, start=start, end=end)
    if not _output_exists(spark, options):
        store.record(None)
    if store.ledger.is_current(made_of):
        return dict(json.loads(files.read_small(spark, f"{options.output}/{SUMMARY}") or "{}"))
    # With bounds only the window's own dates are replaced.
    is_whole = options.start is None and options.end is None
    dates = Dates() if is_whole else Dates(*first_and_last_day(within, options.zone))
    extent = extent_to_make(store.ledger, made_of, within, zone=options.zone, dates=dates)
    store.record(ExistingTables(made_of, within.start, within.end, touched=extent.since, whole=False))
    counts = {"read": read.read, "bad": read.bad, "later_schema": read.later_schema}
    with settings_for_rows(spark, rows=store.ledger.lines_since(extent.since)) as cache:
        draft = options if versions is None else replace(options, output=f"{options.output}/{versions.begin(TABLES)}")
        write_tables(store, draft, objectives, extent, cache)
        tables = ReportTables(spark, draft.output, within, options.zone, options.link_filter)
        result = publish(tables, counts, with_csv=options.csv, run=None if versions is None else versions.run)
        if versions is not None:
            versions.show()
        store.record(ExistingTables(made_of, within.start, within.end))
        store.settle()
        store.compact()
    return result


def _versions(spark: SparkSession, options: Options) -> Versions | None:
    """Object stores have neither links nor renames: there tables are replaced one by one."""
    directory = local_path(options.output)
    if directory is None or not files.is_local(spark, options.output):
        return None
    return Versions(directory, (*TABLES, PAGE, SUMMARY, AVAILABILITY_CSV, INCIDENTS_CSV), keep=options.keep)


def _output_exists(spark: SparkSession, options: Options) -> bool:
    csv_files = (AVAILABILITY_CSV, INCIDENTS_CSV) if options.csv else ()
    return all(files.exists(spark, f"{options.output}/{name}") for name in (*TABLES, PAGE, SUMMARY, *csv_files))


def _fingerprint(options: Options, objectives: Sequence[Objective]) -> str:
    """Everything that tables are made from, except lines, as text."""
    link_filter = options.link_filter
    made_of = (VERSION, options.start, options.end, str(options.zone), options.merge_gap, link_filter, *objectives)
    # The name of the filter's class in the ledgers that exist: with another one, all tables would be made again.
    return repr(made_of).replace("LinkFilter(", "Chosen(", 1)


def follow(spark: SparkSession, options: Options) -> dict[str, Any]:
    """A run for each set of new files: Structured Streaming triggers it, and the store knows what is new. It ends when
    all existing files have been read, if `every` is None; otherwise never. An interrupted step is repeated, and files
    that are in the ledger are not read again.
    """
    # Data from other directories is discarded together with the checkpoint beside it.
    Store(spark, f"{options.output}/{STORE}", options.inputs)
    failed: list[AgentError] = []

    def step(_: DataFrame, __: int) -> None:
        try:
            run(spark, options)
        except AgentError as error:
            failed.append(error)
            raise

    writer = new_files_stream(spark, options.inputs).writeStream.foreachBatch(step).queryName("federation-agent report")
    writer = writer.option("checkpointLocation", f"{options.output}/{STORE}/{CHECKPOINT}")
    if options.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{options.every.total_seconds():g} seconds")
    try:
        writer.start().awaitTermination()
    except StreamingQueryException:
        if failed:
            raise failed[0] from None
        raise
    return run(spark, options)


if __name__ == "__main__":
    try:
        report(parse(sys.argv[1:]))  # for `spark-submit`: the same options as `federation-agent report`
    except AgentError as error:
        sys.exit(str(error))
