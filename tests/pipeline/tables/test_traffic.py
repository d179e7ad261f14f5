"""What counters gained, by lines of a hand."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lines import heartbeats, line
from tests.pipeline.tables.counting import gains

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine


def test_counts_begin_anew_with_an_agent_that_did_not_know_its_group_yet(spark: SparkSession, tmp_path: Path) -> None:
    lines = (
        line(0, "started", group=None, cluster=None),
        *heartbeats(10, 90),
        line(5, "running", type="sample", forwarded=1000),
        line(100, "stopped"),
        line(105, "started", seq=1, group=None, cluster=None),
        line(106, "running", seq=2),
        line(110, "running", seq=3, type="sample", forwarded=10),
        line(115, "heartbeat", seq=4),
    )
    assert forwarded(spark, tmp_path, *lines) == [1010]


def test_counts_begin_anew_with_a_life_whose_start_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers fall too, as they do where a clock is put back; but that happens within one life."""
    lines = (
        *heartbeats(0, 90),
        line(5, "running", type="sample", forwarded=1000),
        line(90, "running", type="sample", forwarded=1500),
        *(one | {"seq": number} for number, one in enumerate(heartbeats(150, 190))),
        line(150.5, "running", seq=3, type="sample", forwarded=10),
    )
    assert forwarded(spark, tmp_path, *lines) == [510]


def forwarded(spark: SparkSession, directory: Path, *lines: dict[str, Any]) -> list[int]:
    return [row["forwarded"] for row in gains(spark, directory, *lines).collect()]
