"""Objectives over all links that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from agent.pipeline.findings.objectives import objective_results
from agent.pipeline.findings.report_tables import IDENTITY, ReportTables

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine

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
    [objective] = objective_results(cast("ReportTables", Rows(rows)), most=0).results
    return objective.burning


def test_a_link_is_at_risk_only_where_it_burns_in_the_long_window_and_in_the_short_one(spark: SparkSession) -> None:
    long, short = {"burn_1h": 20.0}, {"burn_5m": 20.0}
    assert burning(spark, long, short, {}) == 0, "it was over, or is a moment"
    assert burning(spark, long | short, {"burn_3d": 2.0, "burn_6h": 2.0}, long) == 2
