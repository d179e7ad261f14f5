"""The report as a whole: reads once, thins, and writes every table. Runs under `spark-submit` as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from agent.errors import AgentError, CannotStartError
from agent.pipeline import files, java, periods, presence, reading, thinning
from agent.pipeline.availability import availability
from agent.pipeline.edges import edges
from agent.pipeline.incidents import grouped, incidents
from agent.pipeline.intervals import intervals, traits
from agent.pipeline.objectives import USUAL, Objective, parse_objectives
from agent.pipeline.options import Options, parse
from agent.pipeline.periods import day_of, micros, seconds
from agent.pipeline.publishing import publish
from agent.pipeline.schema import LINK
from agent.pipeline.slo import slo
from agent.pipeline.statements import statements
from agent.pipeline.steps import READ, begin
from agent.pipeline.traffic import cells, traffic
from agent.pipeline.window import Bounds, bounds

THINNED = "_lines"

Watch = Callable[[SparkSession], AbstractContextManager[object]]
"""Lasts as long as the work, and sees how far it is."""


def session(master: str | None) -> SparkSession:
    builder = SparkSession.builder.appName("federation-agent report").config("spark.ui.showConsoleProgress", False)
    spark = (builder if master is None else builder.master(master)).getOrCreate()
    context = spark.sparkContext
    if not context.getConf().contains("spark.sql.shuffle.partitions"):
        # Spark's own 200 suit a large cluster; on a small machine they cost more than the work in them.
        spark.conf.set("spark.sql.shuffle.partitions", 8 * context.defaultParallelism)
    return spark


def run(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Writes all tables, `report.html` and `summary.json`, and answers what is in the latter."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    promised: Sequence[Objective] = USUAL
    if options.objectives is not None:
        promised = parse_objectives(files.read_text(spark, options.objectives), source=options.objectives)
    lines, counts = _thinned(spark, options)
    good = lines.where(fn.col("why").isNull())
    within = bounds(good, start=_given(options.start), end=_given(options.end))
    _write_tables(good, options, promised, within)
    whole = _is_whole(options)
    files.write_table(_rejected(lines), "rejected", output=options.output, whole=whole)
    return publish(spark, options.output, within, options.zone, counts)


def _is_whole(options: Options) -> bool:
    """A window that the data bounds is everything there is; any other replaces its own dates."""
    return options.start is None and options.end is None


def _given(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _thinned(spark: SparkSession, options: Options) -> tuple[DataFrame, Mapping[str, int]]:
    """Kept as files: every table begins from them, and what they are made from is read once."""
    counted = Observation()
    why = fn.col("why")
    lines = reading.read(spark, options.inputs).observe(
        counted,
        fn.count(fn.lit(1)).alias("read"),
        fn.count_if(why.isin(reading.MALFORMED, reading.INCOMPLETE)).alias("bad"),
        fn.count_if(why == reading.LATER).alias("later_schema"),
    )
    path = f"{options.output}/{THINNED}"
    begin(spark, READ)
    thinning.thin(lines).write.mode("overwrite").parquet(path)
    return spark.read.parquet(path), counted.get


def _write_tables(lines: DataFrame, options: Options, promised: Sequence[Objective], within: Bounds) -> None:
    spark, whole = lines.sparkSession, _is_whole(options)
    hours = periods.table(spark, within, options.zone)
    links = traits(lines.where(fn.col("link").isNotNull())).persist()
    placed = presence.placed(lines, presence.lives(lines, within)).persist()
    found = intervals(statements(placed, within), links, within).persist()
    passed = cells(placed, within).persist()
    failed = incidents(found, within, merge_gap=round(options.merge_gap.total_seconds() * 1_000_000)).persist()

    def write(name: str, table: DataFrame) -> None:
        files.write_table(table, name, output=options.output, whole=whole)

    def of_links(table: DataFrame) -> DataFrame:
        return table.join(links, [*LINK], "left")

    write("intervals", _finished(of_links(found), options))
    write("availability", of_links(availability(found, failed, hours, within)))
    write("traffic", traffic(passed, links, hours, within))
    write("incidents", _finished(grouped(failed, links).withColumn("down_seconds", seconds(fn.col("down"))), options))
    last_day = day_of(fn.lit(max(within.start, within.end - 1)), options.zone)
    write("slo", of_links(slo(found, passed, promised, within)).withColumn("date", last_day))
    available, moved = (files.read_table(spark, name, output=options.output) for name in ("availability", "traffic"))
    write("edges", edges(available, moved))
    for kept in (failed, passed, found, placed, links):
        kept.unpersist()


def _finished(spans: DataFrame, options: Options) -> DataFrame:
    """Microseconds as instants and durations, and the day on which each began."""
    start, end = fn.col("start"), fn.col("end")
    return spans.select(
        *(name for name in spans.columns if name not in ("start", "end")),
        fn.timestamp_micros(start).alias("start"),
        fn.timestamp_micros(end).alias("end"),
        seconds(end - start).alias("seconds"),
        day_of(start, options.zone).alias("date"),
    )


def _rejected(lines: DataFrame) -> DataFrame:
    """With the day of its directory; lines outside of any have none."""
    day = fn.try_to_date(fn.regexp_extract("file", r"date=(\d{4}-\d{2}-\d{2})/", 1))
    return lines.where(fn.col("why").isNotNull()).select("why", "schema", "file", "line", day.alias("date"))


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
            return run(spark, options)
    finally:
        spark.stop()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AgentError as error:
        sys.exit(str(error))
