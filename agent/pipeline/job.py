"""The `report`: one run, or a run for each set of new files, with its own Spark or with that of `spark-submit`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from agent.errors import AgentError, CannotStartError
from agent.pipeline import files
from agent.pipeline.findings.publish import AVAILABILITY_CSV, INCIDENTS_CSV, PAGE, SUMMARY, publish
from agent.pipeline.findings.report_tables import Asked
from agent.pipeline.objectives import USUAL, Objective, parse_objectives
from agent.pipeline.options import Options, parse
from agent.pipeline.reading.ledger import TablesMade
from agent.pipeline.reading.store import Store, followed
from agent.pipeline.schema import TABLES, VERSION
from agent.pipeline.spark import java_problem, quiet, session, suited_to
from agent.pipeline.tables.update import Dates, extent, write_tables
from agent.pipeline.versions import Versions, local_path, only_writer
from agent.pipeline.window import bounds, first_and_last_day, micros

Watch = Callable[[SparkSession], AbstractContextManager[object]]
"""A context around the work that shows its progress."""


def main(arguments: Sequence[str]) -> None:
    """For `spark-submit`: the same options as `federation-agent report`."""
    options = parse(arguments)
    report(options)


def report(options: Options, *, watch: Watch = nullcontext) -> dict[str, Any]:
    """Starts Spark, or joins the one it was submitted to, and reports in plain words what prevents it."""
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


def check_objectives(options: Options) -> None:
    """Objectives in a local file; those on another file system are read when Spark runs."""
    path = None if options.objectives is None else local_path(options.objectives)
    if path is None:
        return
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CannotStartError(f"--objectives {path}: can't be read: {reason}; give a YAML file") from error
    parse_objectives(text, source=str(options.objectives))


STORE: Final = "_lines"


def run(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Updates the tables, `report.html` and `summary.json`, and returns the summary."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    said = None if options.objectives is None else files.read_text(spark, options.objectives)
    promised = parse_objectives(said, source=str(options.objectives)) if said is not None else USUAL
    versions = _versions(spark, options)
    if versions is not None:
        versions.open()
    store = Store(spark, f"{options.output}/{STORE}", options.inputs)
    store.catch_up()
    read, made_of = store.ledger.content(), _fingerprint(options, promised)
    within = bounds(read.first, read.last, start=_given(options.start), end=_given(options.end))
    if not _exists(spark, options):
        store.record(None)
    if store.ledger.has(made_of):
        return dict(json.loads(files.read_small(spark, f"{options.output}/{SUMMARY}") or "{}"))
    asked = Dates() if options.is_whole else Dates(*first_and_last_day(within, options.zone))
    of = extent(store.ledger, made_of, within, zone=options.zone, asked=asked)
    store.record(TablesMade(made_of, within.start, within.end, touched=of.since, whole=False))
    counts = {"read": read.read, "bad": read.bad, "later_schema": read.later_schema}
    with suited_to(spark, rows=store.ledger.lines_since(of.since)) as keep:
        draft = options if versions is None else replace(options, output=f"{options.output}/{versions.begin(TABLES)}")
        write_tables(store, draft, promised, of, keep)
        asked_of = Asked(spark, draft.output, within, options.zone, options.chosen)
        summed = publish(asked_of, counts, csv=options.csv, run=None if versions is None else versions.run)
        if versions is not None:
            versions.show()
        store.record(TablesMade(made_of, within.start, within.end))
        store.settle()
        store.compact()
    return summed


def _versions(spark: SparkSession, options: Options) -> Versions | None:
    """Object stores have neither links nor renames: there tables are replaced one by one."""
    directory = local_path(options.output)
    if directory is None or not files.is_local(spark, options.output):
        return None
    return Versions(directory, (*TABLES, PAGE, SUMMARY, AVAILABILITY_CSV, INCIDENTS_CSV), keep=options.keep)


def _exists(spark: SparkSession, options: Options) -> bool:
    """Whether the outputs still exist."""
    sheets = (AVAILABILITY_CSV, INCIDENTS_CSV) if options.csv else ()
    return all(files.exists(spark, f"{options.output}/{name}") for name in (*TABLES, PAGE, SUMMARY, *sheets))


def _fingerprint(options: Options, promised: Sequence[Objective]) -> str:
    """A fingerprint of everything except lines that tables are made from."""
    asked = (VERSION, options.start, options.end, str(options.zone), options.merge_gap, options.chosen, *promised)
    return repr(asked)


def _given(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


CHECKPOINT: Final = "_checkpoint"


def follow(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Ends when all existing files have been read, if `every` is None; otherwise never. An interrupted step is
    repeated, and files that are in the ledger are not read again.
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

    writer = followed(spark, options.inputs).writeStream.foreachBatch(step).queryName("federation-agent report")
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
        main(sys.argv[1:])
    except AgentError as error:
        sys.exit(str(error))
