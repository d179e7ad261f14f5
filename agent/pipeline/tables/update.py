"""Updates the tables: decides which dates a run has to make, makes all tables, and writes the dates that differ.

What new lines can't have changed is kept. A date is written if its rows differ from the existing ones, and removed if
it has none. A table without rows has one file without rows: readers find its columns there.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline import files
from agent.pipeline.objectives import Objective
from agent.pipeline.options import Options
from agent.pipeline.reading import lifetimes
from agent.pipeline.reading.ledger import Ledger, TablesMade
from agent.pipeline.reading.store import Store
from agent.pipeline.schema import LINK, SECOND, TRAITS
from agent.pipeline.spark import Keep, begin_step, in_parallel
from agent.pipeline.tables.account import account, with_other_consumers
from agent.pipeline.tables.availability import availability, edges
from agent.pipeline.tables.incidents import grouped, incidents, outages
from agent.pipeline.tables.intervals import intervals, statements, traits
from agent.pipeline.tables.slo import slo
from agent.pipeline.tables.traffic import cells, traffic
from agent.pipeline.window import Bounds, day_of, first_and_last_day, hour_table, seconds, start_of_day


@dataclass(frozen=True, slots=True)
class Dates:
    """From `first` to `last`, if bounded, and additional ones."""

    first: date | None = None
    last: date | None = None
    also: frozenset[date] = frozenset()

    def since(self, day: date, *, also: Collection[date] = ()) -> Dates:
        return replace(self, first=day, also=frozenset(also))

    def hold(self, day: Column) -> Column:
        inside = fn.lit(True)
        if self.first is not None:
            inside &= day >= fn.lit(self.first)
        if self.last is not None:
            inside &= day <= fn.lit(self.last)
        return fn.coalesce(inside | day.isin(*self.also), fn.lit(True))


@dataclass(frozen=True, slots=True)
class Extent:
    """The window from `since` on, which is the start of a date of the time zone. `before` are the tables of earlier
    dates, if all of them exist.
    """

    within: Bounds
    zone: ZoneInfo
    asked: Dates
    since: int
    before: TablesMade | None

    @property
    def is_all(self) -> bool:
        return self.since <= self.within.start

    @property
    def _first(self) -> date:
        return first_and_last_day(Bounds(self.since, self.since + 1), self.zone)[0]

    def dates(self, *, also: DataFrame | None = None) -> Dates:
        """`also` are instants, `at`, whose dates are made too."""
        if self.is_all:
            return self.asked
        days = [] if also is None else also.select(day_of(fn.col("at"), self.zone)).distinct().collect()
        return self.asked.since(self._first, also={row[0] for row in days})

    def earlier(self, table: DataFrame) -> DataFrame:
        """The existing rows of earlier dates."""
        return table.where(self.asked.hold(fn.col("date")) & (fn.col("date") < fn.lit(self._first)))


@dataclass(frozen=True, slots=True)
class LinkChanges:
    """Whether links were added or removed, and whether attributes of the others have changed."""

    other: bool
    renamed: bool

    @property
    def any(self) -> bool:
        return self.other or self.renamed


def extent(ledger: Ledger, made_of: str, within: Bounds, *, zone: ZoneInfo, asked: Dates) -> Extent:
    touched = ledger.touched(made_of, within)
    since = max(within.start, start_of_day(touched, zone))
    before = ledger.standing if ledger.standing and ledger.standing.whole else None
    return Extent(within, zone, asked, since, before)


def link_changes(links: DataFrame, of: Extent, *, output: str) -> LinkChanges:
    """Every link has a row on the last day."""
    if of.before is None:
        return LinkChanges(other=True, renamed=True)
    last = first_and_last_day(Bounds(of.before.start, of.before.end), of.zone)[1]
    table = files.read_table(links.sparkSession, "availability", output=output)
    known = table.where((fn.col("date") == fn.lit(last)) & (fn.col("period") == "day"))
    described = known.select(*LINK, fn.struct(*TRAITS).alias("then"))
    now = links.select(*LINK, fn.struct(*TRAITS).alias("now")).join(described, [*LINK], "left")
    appeared, renamed = fn.col("then").isNull(), fn.col("then") != fn.col("now")
    row = now.agg(fn.count_if(appeared), fn.count_if(renamed)).collect()[0]
    gone = described.join(links, [*LINK], "left_anti").limit(1).count()
    return LinkChanges(bool(row[0] or gone), bool(row[1]))


def write_tables(store: Store, options: Options, promised: Sequence[Objective], of: Extent, keep: Keep) -> None:
    """Writes tables for all lines, including rejected ones."""
    in_parallel(
        store.spark,
        lambda: _write_good(store, options, promised, of, keep),
        lambda: replace_table(_rejected(store.rejected()), "rejected", output=options.output, dates=of.asked),
    )


def _write_good(store: Store, options: Options, promised: Sequence[Objective], of: Extent, keep: Keep) -> None:
    spark, within, lines = store.spark, of.within, store.lines(of.since)
    hours = keep(hour_table(spark, within, options.zone))
    links = keep(traits(lines.where(fn.col("link").isNotNull())))
    # A link's own attributes are kept once, not with each of its lines.
    placed = keep(lifetimes.placed(lines.drop(*TRAITS), lifetimes.lives(lines, within)))
    found = keep(intervals(statements(placed, within), links, within))
    gap = round(options.merge_gap.total_seconds() * SECOND)
    down = keep(outages(found, merge_gap=gap))
    failed = incidents(down, within)
    changed = None if of.is_all else link_changes(links, of, output=options.output)

    def write(name: str, table: DataFrame, dates: Dates = of.asked) -> None:
        replace_table(table, name, output=options.output, dates=dates)

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

    dates, _ = in_parallel(spark, of_time, of_messages)
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


_NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_NO_ROWS = "date=1970-01-01"
_HALF_WRITTEN = ".spark-staging-"
"""Spark's temporary directory before dates are replaced, left behind if it is killed."""


def replace_table(table: DataFrame, name: str, *, output: str, dates: Dates) -> None:
    """`dates` are those that this run has made."""
    spark = table.sparkSession
    begin_step(spark, name)
    fields = files.columns(name)
    rows = table.select(*(fn.col(f"`{field.name}`").cast(field.dataType) for field in fields))
    rows = rows.where(dates.hold(fn.col("date")))
    if not files.exists(spark, f"{output}/{name}"):
        _write(rows, f"{output}/{name}")
        _keep_columns(rows, f"{output}/{name}")
        return
    files.remove_others(spark, f"{output}/{name}", keep=lambda entry: not entry.startswith(_HALF_WRITTEN))
    rows = rows.persist()
    existing = files.read_table(spark, name, output=output).where(dates.hold(fn.col("date")))
    before, now = _digests(existing), _digests(rows)
    differing = [day for day, digest in now.items() if before.get(day) != digest]
    if differing:
        _write(rows.where(_is_in(differing)), f"{output}/{name}")
    for day in before.keys() - now.keys():
        files.remove(spark, f"{output}/{name}/date={day or _NO_DATE}")
    _keep_columns(rows, f"{output}/{name}")
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
    """The same for the same rows in any order; nulls are included explicitly, because a hash skips them."""
    values = [fn.col(f"`{name}`") for name in rows.columns]
    digest = fn.xxhash64(*values, *(value.isNull() for value in values))
    low = digest.bitwiseAND(fn.lit(0xFFFFFFFF))
    found = rows.groupBy("date").agg(fn.count(fn.lit(1)), fn.bit_xor(digest), fn.sum(low)).collect()
    return {day: (count, mixed, sums) for day, count, mixed, sums in found}


def _is_in(days: list[date | None]) -> Column:
    return reduce(operator.or_, (fn.col("date").eqNullSafe(fn.lit(day)) for day in days))
