"""The periods that are columns, and objectives over all links that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from agent.pipeline.findings.report_tables import IDENTITY, ReportTables
from agent.pipeline.findings.time_spent import objectives, shown_periods
from agent.pipeline.schema import SECOND
from agent.pipeline.spark import literal_table
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


@dataclass(frozen=True, slots=True)
class Rows:
    """The table alone."""

    rows: DataFrame

    def slo(self) -> DataFrame:
        return self.rows


def burning(objective: str, link: str, **burns: float) -> dict[str, object]:
    """A link's row of an objective, calm but for these burn rates."""
    calm = {f"burn_{name}": 0.0 for name in ("1h", "5m", "6h", "30m", "3d")}
    usual = {"measured_by": "time", "target_percent": 99.9, "window_days": 30, "attained_percent": 99.95}
    usual |= {"consumed_percent": 50.0, "total": 100.0, "bad": 0.05, "seen_days": 30.0, "period_consumed_percent": 50.0}
    return {**dict.fromkeys(IDENTITY, "x"), **usual, **calm, "objective": objective, "link": link, **burns}


def test_a_link_is_at_risk_only_where_it_burns_in_the_long_window_and_in_the_short_one(spark: SparkSession) -> None:
    rows = [
        burning("over, or a moment", "a", burn_1h=20.0),
        burning("over, or a moment", "b", burn_5m=20.0),
        burning("over, or a moment", "c"),
        burning("now", "a", burn_1h=20.0, burn_5m=20.0),
        burning("now", "b", burn_3d=2.0, burn_6h=2.0),
        burning("now", "c", burn_1h=20.0),
    ]
    kinds = {str: "string", float: "double", int: "bigint"}
    columns = ", ".join(f"`{name}` {kinds[type(value)]}" for name, value in rows[0].items())
    found = objectives(cast("ReportTables", Rows(literal_table(spark, rows, columns))))
    assert {one.name: one.links_burning for one in found} == {"over, or a moment": 0, "now": 2}
