"""Writes the output for people and programs: `report.html` and `summary.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from agent.pipeline.findings.gather import gather
from agent.pipeline.findings.summary import summary
from agent.pipeline.page.document import page
from agent.pipeline.spark import files
from agent.pipeline.spark.steps import TELL, begin
from agent.pipeline.window import Bounds

PAGE: Final = "report.html"
SUMMARY: Final = "summary.json"


def publish(
    spark: SparkSession, output: str, within: Bounds, zone: ZoneInfo, lines: Mapping[str, int]
) -> dict[str, Any]:
    """Writes both, and returns the summary."""
    begin(spark, TELL)
    found = gather(spark, output, within, zone, lines)
    result = summary(found)
    files.write_text(spark, f"{output}/{PAGE}", page(found))
    files.write_text(spark, f"{output}/{SUMMARY}", json.dumps(result, indent=2) + "\n")
    return result
