"""The finished tables, bounded by the window, and how their rows become values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline.findings.model import Spent, Which
from agent.pipeline.schema import CELL, LINK, Bucket
from agent.pipeline.spark import files
from agent.pipeline.tables.periods import EPOCH
from agent.pipeline.window import Bounds

LONGEST: Final = 400
"""The longest shown name or error, in characters."""

_WHICH: Final = (*LINK, "kind", "vhost", "name", "upstream", "upstream_cluster", "cluster")


@dataclass(frozen=True, slots=True)
class Asked:
    """The tables of one finished report, in `output`."""

    spark: SparkSession
    output: str
    within: Bounds
    zone: ZoneInfo

    def availability(self, period: str) -> DataFrame:
        return self.available_in(self.within, period)

    def available_in(self, within: Bounds, period: str) -> DataFrame:
        start, end = fn.unix_micros("start"), fn.unix_micros("end")
        inside = (fn.col("period") == period) & (start >= within.start) & (end <= within.end)
        return self._of_days("availability", within).where(inside)

    def traffic(self) -> DataFrame:
        """Rows of five minutes, including those that the window cuts."""
        start = fn.unix_micros("start")
        inside = (start > self.within.start - CELL) & (start < self.within.end)
        return self._of_days("traffic", self.within).where(inside)

    def incidents(self) -> DataFrame:
        start = fn.unix_micros("start")
        return self._of_days("incidents", self.within).where((start >= self.within.start) & (start < self.within.end))

    def intervals(self) -> DataFrame:
        """Including those that began on a day before the window."""
        overlaps = (fn.unix_micros("start") < self.within.end) & (fn.unix_micros("end") > self.within.start)
        return files.read_table(self.spark, "intervals", output=self.output).where(overlaps)

    def slo(self) -> DataFrame:
        table = files.read_table(self.spark, "slo", output=self.output)
        return table.where(fn.col("date") == fn.lit(self._day(self.within.end - 1)))

    def _of_days(self, name: str, within: Bounds) -> DataFrame:
        """Filters by `date`, which is a directory: days outside are not read."""
        table = files.read_table(self.spark, name, output=self.output)
        return table.where(fn.col("date").between(fn.lit(self._day(within.start)), fn.lit(self._day(within.end - 1))))

    def _day(self, moment: int) -> date:
        return (EPOCH + timedelta(microseconds=moment)).astimezone(self.zone).date()


def which() -> list[Column]:
    """The columns that identify a link, from groups by link."""
    names = [name for name in _WHICH if name not in LINK]
    return [fn.first(fn.substring(name, 1, LONGEST), ignorenulls=True).alias(name) for name in names]


def named() -> list[Column]:
    """The columns that identify a link, from single rows; its key is not shortened."""
    return [fn.col(name) if name in LINK else fn.substring(name, 1, LONGEST).alias(name) for name in _WHICH]


def which_of(row: Any) -> Which:
    return Which(**{name: row[name] for name in _WHICH})


def spent() -> list[Column]:
    return [fn.sum(f"{bucket}_seconds").alias(bucket.value) for bucket in Bucket]


def flowing() -> Column:
    return fn.sum(fn.col("up_seconds") + fn.col("degraded_seconds") + fn.col("down_seconds"))


def spent_of(row: Any) -> Spent:
    return Spent({bucket: float(row[bucket.value] or 0) for bucket in Bucket})
