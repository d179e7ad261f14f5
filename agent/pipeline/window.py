"""The window of the report, and its hours and days in a time zone: days of 23 and 25 hours are handled correctly.

Instants are whole microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline.schema import SECOND
from agent.pipeline.spark import literal_table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 24 * 3600 * SECOND
_STEP = timedelta(minutes=15)  # every zone's offset is a multiple of it


@dataclass(frozen=True, slots=True)
class Bounds:
    """The time from one instant to another."""

    start: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND


def bounds(first: int | None, last: int | None, *, start: int | None, end: int | None) -> Bounds:
    """The bounds of the window; one that isn't given is the first or last line of the data."""
    began = start if start is not None else first or 0
    return Bounds(began, max(began, end if end is not None else last or 0))


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def instant(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def hours(within: Bounds, zone: ZoneInfo) -> Iterator[dict[str, Any]]:
    """The hours of the zone's local time, cut by the window, and their days, as rows of the table of hours."""
    start, end = instant(within.start), instant(within.end)
    while start < end:
        after = min(_next_hour(start, zone), end)
        yield {"hour_start": micros(start), "hour_end": micros(after), "day": start.astimezone(zone).date()}
        start = after


def first_and_last_day(within: Bounds, zone: ZoneInfo) -> tuple[date, date]:
    first, last = (instant(at).astimezone(zone) for at in (within.start, max(within.start, within.end - 1)))
    return first.date(), last.date()


def start_of_day(moment: int, zone: ZoneInfo) -> int:
    """The first instant of the date that contains this one; a clock change at midnight may skip midnight itself."""
    day = instant(moment).astimezone(zone).date()
    midnight = datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)
    while midnight.astimezone(zone).date() < day:
        midnight += _STEP
    return micros(midnight)


def _next_hour(moment: datetime, zone: ZoneInfo) -> datetime:
    """The next full hour of local time, found in steps, because a clock change may be half an hour."""
    step = moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0) + _STEP
    while step.astimezone(zone).minute:
        step += _STEP
    return step


def hour_table(spark: SparkSession, within: Bounds, zone: ZoneInfo) -> DataFrame:
    return literal_table(spark, [*hours(within, zone)], "hour_start bigint, hour_end bigint, day date")


def split_by_hour(spans: DataFrame, hours_of: DataFrame) -> DataFrame:
    """Rows with `start` and `end` → one for each hour that they overlap, with the overlap as `part`."""
    near = fn.col("near")
    touched = _with_near(spans.withColumn("near", _days("start", "end")), hours_of)
    part = fn.least("end", "hour_end", (near + 1) * _DAY) - fn.greatest("start", "hour_start", near * _DAY)
    return touched.withColumn("part", part).where(fn.col("part") > 0).drop("near")


def with_hour(rows: DataFrame, moment: str, hours_of: DataFrame) -> DataFrame:
    """Rows with the hour of a moment: those outside of all hours are left out."""
    near = _with_near(rows.withColumn("near", fn.expr(f"{moment} div {_DAY}")), hours_of)
    at = fn.col(moment)
    return near.where((at >= fn.col("hour_start")) & (at < fn.col("hour_end"))).drop("near")


def by_hour_and_day(rows: DataFrame) -> DataFrame:
    """Each row twice: with its `hour`, and without one, for its day."""
    return rows.withColumn("hour", fn.explode(fn.array("hour_start", fn.lit(None))))


def _with_near(rows: DataFrame, hours_of: DataFrame) -> DataFrame:
    """The rows joined with the hours near them, by UTC day: comparing each row with all hours of ninety days was most
    of the work."""
    return rows.join(fn.broadcast(hours_of.withColumn("near", _days("hour_start", "hour_end"))), "near")


def _days(start: str, end: str) -> Column:
    """The UTC days that a span overlaps, for joins."""
    return fn.explode(fn.expr(f"sequence({start} div {_DAY}, ({end} - 1) div {_DAY})"))


def day_of(moment: Column, zone: ZoneInfo) -> Column:
    """The zone's date of an instant in microseconds."""
    return fn.to_date(fn.from_utc_timestamp(fn.timestamp_micros(moment), str(zone)))


def seconds(duration: Column) -> Column:
    """Microseconds as exact seconds."""
    return (duration.cast("decimal(18,0)") / SECOND).cast("decimal(18,6)")
