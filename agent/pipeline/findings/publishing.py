"""Writes the output for people and programs: `report.html` and `summary.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.gather import gather
from agent.pipeline.findings.sheets import write_sheets
from agent.pipeline.findings.summary import summary
from agent.pipeline.page.document import page
from agent.pipeline.spark import files
from agent.pipeline.spark.steps import TELL, begin

PAGE: Final = "report.html"
SUMMARY: Final = "summary.json"


def publish(asked: Asked, lines: Mapping[str, int], *, csv: bool, run: str | None) -> dict[str, Any]:
    """Writes both, and returns the summary."""
    spark, output = asked.spark, asked.output
    begin(spark, TELL)
    found = gather(asked, lines)
    result = summary(found, run=run)
    if csv:
        write_sheets(asked)
    files.write_text(spark, f"{output}/{PAGE}", page(found))
    files.write_text(spark, f"{output}/{SUMMARY}", json.dumps(result, indent=2) + "\n")
    return result
