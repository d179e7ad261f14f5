"""Makes every table from thinned lines and writes it at once: tables that others depend on come first."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.options import Options
from agent.pipeline.reading import presence
from agent.pipeline.reading.store import Store
from agent.pipeline.schema import LINK, SECOND, TRAITS
from agent.pipeline.spark import files
from agent.pipeline.spark.effort import Keep
from agent.pipeline.spark.side_by_side import side_by_side
from agent.pipeline.tables import periods
from agent.pipeline.tables.account import account, with_other_consumers
from agent.pipeline.tables.availability import availability
from agent.pipeline.tables.dates import Dates
from agent.pipeline.tables.edges import edges
from agent.pipeline.tables.extent import Extent, link_changes
from agent.pipeline.tables.incidents import grouped, incidents, outages
from agent.pipeline.tables.intervals import intervals, traits
from agent.pipeline.tables.objectives import Objective
from agent.pipeline.tables.periods import day_of, seconds
from agent.pipeline.tables.replacing import replace
from agent.pipeline.tables.slo import slo
from agent.pipeline.tables.statements import statements
from agent.pipeline.tables.traffic import cells, traffic
from agent.pipeline.window import Bounds


def write_tables(store: Store, options: Options, promised: Sequence[Objective], of: Extent, keep: Keep) -> None:
    """Writes tables for all lines, including rejected ones."""
    side_by_side(
        store.spark,
        lambda: _write_good(store, options, promised, of, keep),
        lambda: replace(_rejected(store.rejected()), "rejected", output=options.output, dates=of.asked),
    )


def _write_good(store: Store, options: Options, promised: Sequence[Objective], of: Extent, keep: Keep) -> None:
    spark, within, lines = store.spark, of.within, store.lines(of.since)
    hours = keep(periods.table(spark, within, options.zone))
    links = keep(traits(lines.where(fn.col("link").isNotNull())))
    # A link's own attributes are kept once, not with each of its lines.
    placed = keep(presence.placed(lines.drop(*TRAITS), presence.lives(lines, within)))
    found = keep(intervals(statements(placed, within), links, within))
    gap = round(options.merge_gap.total_seconds() * SECOND)
    down = keep(outages(found, merge_gap=gap))
    failed = incidents(down, within)
    changed = None if of.is_all else link_changes(links, of, output=options.output)

    def write(name: str, table: DataFrame, dates: Dates = of.asked) -> None:
        replace(table, name, output=options.output, dates=dates)

    def existing_table(name: str) -> DataFrame:
        return files.read_table(spark, name, output=options.output)

    def of_links(table: DataFrame) -> DataFrame:
        return table.join(links, [*LINK], "left")

    def of_time() -> Dates:
        write("intervals", _finished(of_links(found), options))
        write(
            "incidents", _finished(grouped(failed, links).withColumn("down_seconds", seconds(fn.col("down"))), options)
        )
        # A day has the incidents that began on it, even if they lasted longer, or no longer count as incidents.
        begun = down.where(fn.col("end") >= of.since - gap).select(fn.col("start").alias("at"))
        dates = of.asked if changed is None or changed.any else of.dates(also=begun)
        in_these = hours.where(dates.hold(fn.col("day")))
        write("availability", of_links(availability(found, failed, in_these, within)), dates)
        return dates

    def of_messages() -> None:
        made, dates = Bounds(of.since, within.end), of.dates()
        counted = keep(cells(placed, made))
        passed = traffic(counted, links, hours, made)
        accounts = with_other_consumers(of_links(account(counted, hours, made)))
        if changed is not None and changed.renamed:
            store.doubt(since=within.start)
            before, also = (of.earlier(existing_table(name)).drop(*TRAITS) for name in ("traffic", "account"))
            passed, dates = passed.unionByName(of_links(before)), of.asked
            accounts = accounts.unionByName(of_links(also))
        write("traffic", passed, dates)
        write("account", accounts, dates)
        last_day = day_of(fn.lit(max(within.start, within.end - 1)), options.zone)
        judged = slo(found, existing_table("traffic"), promised, within)
        write("slo", of_links(judged).withColumn("date", last_day))

    dates, _ = side_by_side(spark, of_time, of_messages)
    available, moved = (existing_table(name).where(dates.hold(fn.col("date"))) for name in ("availability", "traffic"))
    write("edges", edges(available, moved), dates)


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
    """With the day of its directory; lines outside such directories have none."""
    day = fn.try_to_date(fn.regexp_extract("file", r"date=(\d{4}-\d{2}-\d{2})/", 1))
    return lines.select("why", "schema", "file", "line", day.alias("date"))
