"""The periods that are columns, and objectives over all links that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from agent.pipeline.findings.availability import objectives, shown_periods
from agent.pipeline.findings.report_tables import IDENTITY, ReportTables
from agent.pipeline.schema import SECOND
from agent.pipeline.window import Bounds

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

DAY = 24 * 3600 * SECOND
WINDOW = Bounds(10 * DAY, 12 * DAY)


def test_a_clock_that_is_a_second_off_adds_no_day() -> None:
    known = {9 * DAY: False, 10 * DAY: True, 11 * DAY: True, 12 * DAY: False}
    off = Bounds(WINDOW.start - 3 * SECOND // 2, WINDOW.end + 3 * SECOND // 2)
    assert shown_periods(known, off, DAY) == (10 * DAY, 11 * DAY)


def test_what_is_known_or_asked_for_stays() -> None:
    touched = Bounds(WINDOW.start - SECOND, WINDOW.end)
    assert shown_periods({9 * DAY: True, 10 * DAY: True}, touched, DAY) == (9 * DAY, 10 * DAY), (
        "something is known of it"
    )
    assert shown_periods({10 * DAY: False, 11 * DAY: True}, WINDOW, DAY) == (10 * DAY, 11 * DAY), "a whole day"
    assert shown_periods({10 * DAY: True, 11 * DAY: False, 12 * DAY: True}, WINDOW, DAY)[1] == 11 * DAY, "in the middle"
    assert shown_periods({}, WINDOW, DAY) == ()


CALM: Final = {f"burn_{name}": 0.0 for name in ("1h", "5m", "6h", "30m", "3d")}
OF_ALL: Final = {
    **dict.fromkeys(IDENTITY, "x"),
    "objective": "events",
    "measured_by": "time",
    "target_percent": 99.9,
    "window_days": 30,
    "attained_percent": 99.95,
    "consumed_percent": 50.0,
    "total": 100.0,
    "bad": 0.05,
    "seen_days": 30.0,
    "period_consumed_percent": 50.0,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """The table alone."""

    rows: DataFrame

    def slo(self) -> DataFrame:
        return self.rows


def burning(spark: SparkSession, *burns: dict[str, Any]) -> int:
    """How many of these links are at risk now."""
    rows = spark.createDataFrame([OF_ALL | CALM | each for each in burns])
    [objective] = objectives(cast("ReportTables", Rows(rows)))
    return objective.links_burning


def test_a_link_is_at_risk_only_where_it_burns_in_the_long_window_and_in_the_short_one(spark: SparkSession) -> None:
    long, short = {"burn_1h": 20.0}, {"burn_5m": 20.0}
    assert burning(spark, long, short, {}) == 0, "it was over, or is a moment"
    assert burning(spark, long | short, {"burn_3d": 2.0, "burn_6h": 2.0}, long) == 2
