"""A finished report, as tests ask it."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, Row, SparkSession

from agent.pipeline import files, options
from agent.pipeline.job import run
from agent.pipeline.page.formatting import HARD
from tests.pipeline.lines import instant, write

HOUR: Final = 3600
END: Final = 48 * HOUR
"""From noon before the night in which Berlin's clocks are put forward to noon after the next."""
ZONE: Final = ZoneInfo("Europe/Berlin")
ODD: Final = "a{b}[c]*?%20 d"
"""A path that looks like a pattern."""
OBJECTIVES: Final = "objectives:\n  up: {target: 99.9}\n  prompt: {target: 90, within: 0.5}\n"


@dataclass(frozen=True)
class Report:
    spark: SparkSession
    output: Path
    summary: dict[str, Any]
    lines: Sequence[dict[str, Any]]

    def table(self, name: str) -> DataFrame:
        return files.read_table(self.spark, name, output=str(self.output))

    def rows(self, name: str, **wanted: str) -> list[Row]:
        found = self.table(name)
        for column, value in wanted.items():
            found = found.where(found[column] == value)
        return sorted(found.collect(), key=str) if name == "rejected" else found.orderBy("start", "link").collect()

    def sheet(self, name: str) -> list[dict[str, str]]:
        with (self.output / f"{name}.csv").open(newline="") as file:
            return [*csv.DictReader(file)]

    @cached_property
    def text(self) -> str:
        return unescape(re.sub(r"<[^>]*>", "", (self.output / "report.html").read_text())).replace(HARD, " ")


def report_of(
    spark: SparkSession, directory: Path, lines: Sequence[dict[str, Any]], bad: Sequence[str], *, shown: Sequence[str]
) -> Report:
    """Of `END`, in days of `ZONE`; its page, summary and sheets are about the groups that are `shown`."""
    write(directory / "export", *lines, *bad)
    (directory / "objectives.yaml").write_text(OBJECTIVES)
    asked = ["--input", str(directory / "export"), "--output", str(directory / "report"), "--csv"]
    asked += ["--timezone", str(ZONE), "--objectives", str(directory / "objectives.yaml")]
    asked += [f"--group={group}" for group in shown]
    asked += ["--from", instant(0).isoformat(), "--to", instant(END).isoformat()]
    return Report(spark, directory / "report", run(spark, options.parse(asked)), lines)
