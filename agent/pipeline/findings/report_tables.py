"""The finished tables, bounded by the window, and how their rows become values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline import files
from agent.pipeline.findings.model import LinkIdentity, TimeSpent
from agent.pipeline.options import LinkFilter
from agent.pipeline.schema import CELL, LINK, Bucket
from agent.pipeline.window import Bounds, instant

LONGEST: Final = 400
"""The longest shown name or error, in characters."""

IDENTITY: Final = (*LINK, "kind", "vhost", "name", "upstream", "upstream_cluster", "cluster")


@dataclass(frozen=True, slots=True)
class ReportTables:
    """The tables of one finished report, in `output`."""

    spark: SparkSession
    output: str
    within: Bounds
    zone: ZoneInfo
    link_filter: LinkFilter = field(default_factory=LinkFilter)

    def availability(self, period: str, *, within: Bounds | None = None) -> DataFrame:
        """The hours or days that are inside the window, or `within` other bounds."""
        chosen = within or self.within
        inside = (fn.unix_micros("start") >= chosen.start) & (fn.unix_micros("end") <= chosen.end)
        return self._of_days("availability", chosen).where((fn.col("period") == period) & inside)

    def traffic(self) -> DataFrame:
        """Rows of five minutes, including those that the window cuts."""
        return self._begun("traffic", since=self.within.start - CELL + 1)

    def incidents(self) -> DataFrame:
        return self._begun("incidents", since=self.within.start)

    def intervals(self) -> DataFrame:
        """The intervals that overlap the window, including those that began on a day before it."""
        return self._table("intervals").where(self._overlaps())

    def standby(self) -> DataFrame:
        """The periods that overlap the window; none where only some links are chosen."""
        chosen = self.link_filter
        rows = files.read_table(self.spark, "standby", output=self.output).where(self._overlaps())
        return rows.where(_any(chosen.groups, "group") & fn.lit(not (chosen.links or chosen.upstreams)))

    def account(self) -> DataFrame:
        """The account by hour, inside the window: the tables may hold other dates."""
        return self._begun("account", since=self.within.start).where(fn.col("period") == "hour")

    def slo(self) -> DataFrame:
        return self._table("slo").where(fn.col("date") == fn.lit(self._day(self.within.end - 1)))

    def _overlaps(self) -> Column:
        return (fn.unix_micros("start") < self.within.end) & (fn.unix_micros("end") > self.within.start)

    def _begun(self, name: str, *, since: int) -> DataFrame:
        start = fn.unix_micros("start")
        return self._of_days(name, self.within).where((start >= since) & (start < self.within.end))

    def _of_days(self, name: str, within: Bounds) -> DataFrame:
        """Filters by `date`, which is a directory: days outside are not read."""
        first, last = (fn.lit(self._day(moment)) for moment in (within.start, within.end - 1))
        return self._table(name).where(fn.col("date").between(first, last))

    def _table(self, name: str) -> DataFrame:
        return files.read_table(self.spark, name, output=self.output).where(_matches(self.link_filter))

    def _day(self, moment: int) -> date:
        return instant(moment).astimezone(self.zone).date()


def _matches(link_filter: LinkFilter) -> Column:
    place = fn.concat_ws("/", "vhost", "name")
    return (
        _any(link_filter.links, "link", "name", place)
        & _any(link_filter.upstreams, "upstream", "upstream_cluster")
        & _any(link_filter.groups, "group")
    )


def _any(patterns: Sequence[str], *names: str | Column) -> Column:
    """True if one of the values matches one of the patterns; without patterns everything does."""
    if not patterns:
        return fn.lit(True)
    expression = f"(?s)(?:{'|'.join(map(_expression, patterns))})"
    found = (fn.coalesce(fn.regexp_like(name, fn.lit(f"^{expression}$")), fn.lit(False)) for name in names)
    return reduce(operator.or_, found)


def _expression(pattern: str) -> str:
    """As Java reads it: any character may be escaped that isn't a letter or a digit."""
    return "".join(".*" if one == "*" else one if one.isalnum() else f"\\{one}" for one in pattern)


def shortened(name: str) -> Column:
    return fn.substring(name, 1, LONGEST).alias(name)


def identity_aggregates() -> list[Column]:
    """The columns that identify a link, from groups by link."""
    names = [name for name in IDENTITY if name not in LINK]
    return [fn.first(fn.substring(name, 1, LONGEST), ignorenulls=True).alias(name) for name in names]


def identity_columns() -> list[Column]:
    """The columns that identify a link, from single rows; its key is not shortened."""
    return [fn.col(name) if name in LINK else shortened(name) for name in IDENTITY]


def identity_of(row: Any) -> LinkIdentity:
    return LinkIdentity(**{name: row[name] for name in IDENTITY})


def time_columns() -> list[Column]:
    """The sums of seconds in each bucket, from grouped rows of `availability`."""
    return [fn.sum(f"{bucket}_seconds").alias(bucket.value) for bucket in Bucket]


def time_spent_of(row: Any) -> TimeSpent:
    return TimeSpent({bucket: float(row[bucket.value] or 0) for bucket in Bucket})
