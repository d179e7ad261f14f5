"""Every table from thinned lines, each written when it is made: those that others are made of come first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from agent.pipeline import files, periods, presence
from agent.pipeline.availability import availability
from agent.pipeline.edges import edges
from agent.pipeline.incidents import grouped, incidents
from agent.pipeline.intervals import intervals, traits
from agent.pipeline.objectives import Objective
from agent.pipeline.options import Options
from agent.pipeline.periods import day_of, seconds
from agent.pipeline.replacing import replace
from agent.pipeline.schema import LINK, TRAITS
from agent.pipeline.side_by_side import side_by_side
from agent.pipeline.slo import slo
from agent.pipeline.statements import statements
from agent.pipeline.traffic import cells, traffic
from agent.pipeline.window import Bounds


def write_tables(lines: DataFrame, options: Options, promised: Sequence[Objective], within: Bounds) -> None:
    """Of all lines, also those that are set aside."""
    days = None if options.is_whole else periods.days(within, options.zone)
    good = lines.where(fn.col("why").isNull()).drop("why", "line", "file", "schema")
    side_by_side(
        lines.sparkSession,
        lambda: _write_good(good, options, promised, within, days),
        lambda: replace(_rejected(lines), "rejected", output=options.output, days=days),
    )


def _write_good(
    lines: DataFrame,
    options: Options,
    promised: Sequence[Objective],
    within: Bounds,
    days: tuple[date, date] | None,
) -> None:
    spark = lines.sparkSession
    hours = periods.table(spark, within, options.zone).persist()
    links = traits(lines.where(fn.col("link").isNotNull())).persist()
    # What is known of a link by itself is kept once, and not with each of its lines.
    placed = presence.placed(lines.drop(*TRAITS), presence.lives(lines, within)).persist()
    found = intervals(statements(placed, within), links, within).persist()
    passed = cells(placed, within).persist()
    failed = incidents(found, within, merge_gap=round(options.merge_gap.total_seconds() * 1_000_000)).persist()

    def write(name: str, table: DataFrame) -> None:
        replace(table, name, output=options.output, days=days)

    def of_links(table: DataFrame) -> DataFrame:
        return table.join(links, [*LINK], "left")

    def of_time() -> None:
        down = seconds(fn.col("down"))
        write("intervals", _finished(of_links(found), options))
        write("availability", of_links(availability(found, failed, hours, within)))
        write("incidents", _finished(grouped(failed, links).withColumn("down_seconds", down), options))

    def of_messages() -> None:
        last_day = day_of(fn.lit(max(within.start, within.end - 1)), options.zone)
        write("traffic", traffic(passed, links, hours, within))
        write("slo", of_links(slo(found, passed, promised, within)).withColumn("date", last_day))

    side_by_side(spark, of_time, of_messages)
    for kept in (failed, passed, found, placed, links, hours):
        kept.unpersist()
    available, moved = (files.read_table(spark, name, output=options.output) for name in ("availability", "traffic"))
    write("edges", edges(available, moved))


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
