"""Which part of the tables a run has to make: what new lines can't have changed is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.reading.ledger import Ledger, TablesMade
from agent.pipeline.schema import LINK, TRAITS
from agent.pipeline.spark import files
from agent.pipeline.tables import periods
from agent.pipeline.tables.dates import Dates
from agent.pipeline.window import Bounds


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
        return periods.days(Bounds(self.since, self.since + 1), self.zone)[0]

    def dates(self, *, also: DataFrame | None = None) -> Dates:
        """`also` are instants, `at`, whose dates are made too."""
        if self.is_all:
            return self.asked
        days = [] if also is None else also.select(periods.day_of(fn.col("at"), self.zone)).distinct().collect()
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
    since = max(within.start, periods.start_of_day(touched, zone))
    before = ledger.standing if ledger.standing and ledger.standing.whole else None
    return Extent(within, zone, asked, since, before)


def link_changes(links: DataFrame, of: Extent, *, output: str) -> LinkChanges:
    """Every link has a row on the last day."""
    if of.before is None:
        return LinkChanges(other=True, renamed=True)
    last = periods.days(Bounds(of.before.start, of.before.end), of.zone)[1]
    table = files.read_table(links.sparkSession, "availability", output=output)
    known = table.where((fn.col("date") == fn.lit(last)) & (fn.col("period") == "day"))
    described = known.select(*LINK, fn.struct(*TRAITS).alias("then"))
    now = links.select(*LINK, fn.struct(*TRAITS).alias("now")).join(described, [*LINK], "left")
    appeared, renamed = fn.col("then").isNull(), fn.col("then") != fn.col("now")
    row = now.agg(fn.count_if(appeared), fn.count_if(renamed)).collect()[0]
    gone = described.join(links, [*LINK], "left_anti").limit(1).count()
    return LinkChanges(bool(row[0] or gone), bool(row[1]))
