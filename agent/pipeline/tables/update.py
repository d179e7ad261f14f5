"""Updates the tables: decides which dates a run has to make, makes all tables, and writes the dates that differ.

What new lines can't have changed is kept. A date is written if its rows differ from the existing ones, and removed if
it has none. A table without rows has one file without rows: readers find its columns there.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.core.export_event import EventType
from agent.pipeline import files
from agent.pipeline.objectives import Objective
from agent.pipeline.options import Options
from agent.pipeline.reading import thinning
from agent.pipeline.reading.ledger import ExistingTables, Ledger
from agent.pipeline.reading.store import Store
from agent.pipeline.schema import LINK, LINK_ATTRIBUTES, SECOND
from agent.pipeline.spark import Cache, begin_step, in_parallel
from agent.pipeline.tables.availability import availability, edges, slo
from agent.pipeline.tables.incidents import incidents, outages, with_outages
from agent.pipeline.tables.intervals import agent_reports, intervals, link_attributes, standby
from agent.pipeline.tables.traffic import account, cells, traffic, with_other_consumers
from agent.pipeline.window import Bounds, day_of, first_and_last_day, hour_table, seconds, start_of_day

_NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_NO_ROWS = "date=1970-01-01"
_HALF_WRITTEN = ".spark-staging-"
"""Spark's temporary directory before dates are replaced, left behind if it is killed."""


@dataclass(frozen=True, slots=True)
class Dates:
    """From `first` to `last`, if bounded, and additional ones. Every run makes rows without a date."""

    first: date | None = None
    last: date | None = None
    extra: frozenset[date] = frozenset()

    def contain(self, day: Column) -> Column:
        inside = fn.lit(True)
        if self.first is not None:
            inside &= day >= fn.lit(self.first)
        if self.last is not None:
            inside &= day <= fn.lit(self.last)
        return fn.coalesce(inside | day.isin(*self.extra), fn.lit(True))


@dataclass(frozen=True, slots=True)
class Extent:
    """The part that a run makes: the window from `since` on, which is the start of a date of the time zone, of the
    `wanted` dates. `before` are the tables of earlier dates, if all of them exist.
    """

    within: Bounds
    zone: ZoneInfo
    wanted: Dates
    since: int
    before: ExistingTables | None

    @property
    def is_all(self) -> bool:
        return self.since <= self.within.start

    @property
    def _first(self) -> date:
        return first_and_last_day(Bounds(self.since, self.since + 1), self.zone)[0]

    def dates(self, *, extra: DataFrame | None = None) -> Dates:
        """`extra` are instants, `at`, whose dates are made too."""
        if self.is_all:
            return self.wanted
        days = [] if extra is None else extra.select(day_of(fn.col("at"), self.zone)).distinct().collect()
        return replace(self.wanted, first=self._first, extra=frozenset(row[0] for row in days))

    def earlier(self, table: DataFrame) -> DataFrame:
        """The existing rows of earlier dates."""
        return table.where(self.wanted.contain(fn.col("date")) & (fn.col("date") < fn.lit(self._first)))


def extent_to_make(ledger: Ledger, made_of: str, within: Bounds, *, zone: ZoneInfo, dates: Dates) -> Extent:
    since = max(within.start, start_of_day(ledger.outdated_since(made_of, within), zone))
    before = ledger.tables if ledger.tables and ledger.tables.whole else None
    return Extent(within, zone, dates, since, before)


def _link_changes(links: DataFrame, extent: Extent, *, output: str) -> tuple[bool, bool]:
    """True if links were added or removed, and if attributes of others have changed. It is seen by the last day, on
    which every link has a row.
    """
    if extent.is_all:
        return False, False
    if extent.before is None:
        return True, True
    last = first_and_last_day(Bounds(extent.before.start, extent.before.end), extent.zone)[1]
    table = files.read_table(links.sparkSession, "availability", output=output)
    known = table.where((fn.col("date") == fn.lit(last)) & (fn.col("period") == "day"))
    described = known.select(*LINK, fn.struct(*LINK_ATTRIBUTES).alias("then"))
    now = links.select(*LINK, fn.struct(*LINK_ATTRIBUTES).alias("now")).join(described, [*LINK], "left")
    appeared, changed = fn.col("then").isNull(), fn.col("then") != fn.col("now")
    row = now.agg(fn.count_if(appeared), fn.count_if(changed)).collect()[0]
    gone = described.join(links, [*LINK], "left_anti").limit(1).count()
    return bool(row[0] or gone), bool(row[1])


def write_tables(store: Store, options: Options, objectives: Sequence[Objective], extent: Extent, cache: Cache) -> None:
    """Writes tables for all lines, including rejected ones."""
    in_parallel(
        store.spark,
        lambda: _write_good(store, options, objectives, extent, cache),
        lambda: _replace_table(_rejected(store.rejected()), "rejected", output=options.output, dates=extent.wanted),
    )


def _write_good(store: Store, options: Options, objectives: Sequence[Objective], extent: Extent, cache: Cache) -> None:
    """Write the tables of accepted lines; those that others depend on come first."""
    spark, within, lines = store.spark, extent.within, store.lines(extent.since)
    hours = cache(hour_table(spark, within, options.zone))
    is_of_standby = fn.col("type") == EventType.STANDBY
    links = cache(link_attributes(lines.where(fn.col("link").isNotNull() & ~is_of_standby)))
    # A link's own attributes are kept once, not with each of its lines.
    all_placed = cache(thinning.with_lives(lines.drop(*LINK_ATTRIBUTES), thinning.lives(lines, within)))
    placed = all_placed.where(~is_of_standby)
    found = cache(intervals(agent_reports(placed, within), links, within))
    gap = round(options.merge_gap.total_seconds() * SECOND)
    down = cache(outages(found, merge_gap=gap))
    failed = incidents(down, within)
    has_other_links, has_other_attributes = _link_changes(links, extent, output=options.output)

    def write(name: str, table: DataFrame, dates: Dates = extent.wanted) -> None:
        _replace_table(table, name, output=options.output, dates=dates)

    def existing_table(name: str) -> DataFrame:
        return files.read_table(spark, name, output=options.output)

    def of_links(table: DataFrame) -> DataFrame:
        return table.join(links, [*LINK], "left")

    def of_time() -> Dates:
        write("intervals", _finished(of_links(found), options))
        found_incidents = with_outages(failed, links).withColumn("down_seconds", seconds(fn.col("down")))
        write("incidents", _finished(found_incidents, options))
        # A day has the incidents that began on it, even if they lasted longer, or no longer count as incidents.
        begun = down.where(fn.col("end") >= extent.since - gap).select(fn.col("start").alias("at"))
        dates = extent.wanted if has_other_links or has_other_attributes else extent.dates(extra=begun)
        hours_of_dates = hours.where(dates.contain(fn.col("day")))
        write("availability", of_links(availability(found, failed, hours_of_dates, within)), dates)
        standbys = link_attributes(lines.where(is_of_standby)).select("group", "cluster", "upstream")
        stood = standby(agent_reports(all_placed.where(is_of_standby), within), within)
        write("standby", _finished(stood.join(standbys, "group", "left"), options))
        return dates

    def of_messages() -> None:
        made, dates = Bounds(extent.since, within.end), extent.dates()
        counted = cache(cells(placed, made))
        passed = traffic(counted, links, hours, made)
        accounts = with_other_consumers(of_links(account(counted, hours, made)))
        if has_other_attributes:
            store.mark_outdated(since=within.start)
            before, also = (
                extent.earlier(existing_table(name)).drop(*LINK_ATTRIBUTES) for name in ("traffic", "account")
            )
            passed, dates = passed.unionByName(of_links(before)), extent.wanted
            accounts = accounts.unionByName(of_links(also))
        write("traffic", passed, dates)
        write("account", accounts, dates)
        last_day = day_of(fn.lit(max(within.start, within.end - 1)), options.zone)
        used = slo(found, existing_table("traffic"), objectives, within)
        write("slo", of_links(used).withColumn("date", last_day))

    dates, _ = in_parallel(spark, of_time, of_messages)
    available, moved = (
        existing_table(name).where(dates.contain(fn.col("date"))) for name in ("availability", "traffic")
    )
    write("edges", edges(available, moved), dates)


def _finished(spans: DataFrame, options: Options) -> DataFrame:
    """The spans with microseconds as instants and durations, and the day on which each began."""
    start, end = fn.col("start"), fn.col("end")
    return spans.select(
        *(name for name in spans.columns if name not in ("start", "end")),
        fn.timestamp_micros(start).alias("start"),
        fn.timestamp_micros(end).alias("end"),
        seconds(end - start).alias("seconds"),
        day_of(start, options.zone).alias("date"),
    )


def _rejected(lines: DataFrame) -> DataFrame:
    """The rejected lines with the day of their directory; lines outside such directories have none."""
    day = fn.try_to_date(fn.regexp_extract("file", r"date=(\d{4}-\d{2}-\d{2})/", 1))
    return lines.select("why", "schema", "file", "line", day.alias("date"))


def _replace_table(table: DataFrame, name: str, *, output: str, dates: Dates) -> None:
    """`dates` are those that this run has made."""
    spark, path = table.sparkSession, f"{output}/{name}"
    begin_step(spark, name)
    rows = table.select(*(fn.col(f"`{field.name}`").cast(field.dataType) for field in files.columns(name)))
    rows = rows.where(dates.contain(fn.col("date")))
    if not files.exists(spark, path):
        _write(rows, path)
        _keep_columns(rows, path)
        return
    files.remove_others(spark, path, keep=lambda entry: not entry.startswith(_HALF_WRITTEN))
    rows = rows.persist()
    existing = files.read_table(spark, name, output=output).where(dates.contain(fn.col("date")))
    before, now = _digests(existing), _digests(rows)
    differing = [day for day, digest in now.items() if before.get(day) != digest]
    if differing:
        is_differing = reduce(operator.or_, (fn.col("date").eqNullSafe(fn.lit(day)) for day in differing))
        _write(rows.where(is_differing), path)
    for day in before.keys() - now.keys():
        files.remove(spark, f"{path}/date={day or _NO_DATE}")
    _keep_columns(rows, path)
    rows.unpersist()


def _keep_columns(rows: DataFrame, path: str) -> None:
    dates = [entry for entry in files.entries(rows.sparkSession, path) if entry.startswith("date=")]
    if not dates:
        rows.limit(0).drop("date").write.mode("overwrite").parquet(f"{path}/{_NO_ROWS}")
    elif len(dates) > 1 and _NO_ROWS in dates:
        files.remove(rows.sparkSession, f"{path}/{_NO_ROWS}")


def _write(rows: DataFrame, path: str) -> None:
    writer = rows.repartition("date").write.option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("date").mode("overwrite").parquet(path)


def _digests(rows: DataFrame) -> dict[date | None, tuple[int, int, int]]:
    """A digest of the rows of each date: the same for the same rows in any order. Nulls are included explicitly,
    because a hash skips them."""
    values = [fn.col(f"`{name}`") for name in rows.columns]
    digest = fn.xxhash64(*values, *(value.isNull() for value in values))
    low = digest.bitwiseAND(fn.lit(0xFFFFFFFF))
    found = rows.groupBy("date").agg(fn.count(fn.lit(1)), fn.bit_xor(digest), fn.sum(low)).collect()
    return {day: (count, mixed, sums) for day, count, mixed, sums in found}
