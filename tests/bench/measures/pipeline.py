"""What the report costs beside reading and counting the same lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.bench import Bench
from tests.bench.exports import Export
from tests.bench.table import Measure, Target

LINES, LINES_QUICK = (1_000_000, 5_000_000, 20_000_000), (1_000_000,)
AGENTS, EACH = 20, 50
SETTINGS = (
    "--master local[2] --driver-memory 2g --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
    "pyspark-shell"
)


def report(bench: Bench) -> list[Measure]:
    """`report` by the million lines on local[2] with 2 GiB, beside Spark that reads and counts them; and with skew."""
    measures = [_of(lines, bench.runs) for lines in (LINES if bench.full else LINES_QUICK)]
    return [*measures, _skew(LINES_QUICK[0], bench.runs)]


def _of(lines: int, runs: int) -> Measure:
    measure = Measure(f"report-{lines // 1_000_000}m", "times as long as counting", (Target(at_most=3, of_agent=True),))
    with tempfile.TemporaryDirectory() as directory:
        export = Path(directory, "export")
        Export(AGENTS, EACH, lines).write(export)
        for run in range(runs):
            counted = _spark("count", export)
            told = _spark("report", export, Path(directory, f"report-{run}"))
            measure.add("agent", told["seconds"] / counted["seconds"])
    return measure


def _skew(lines: int, runs: int) -> Measure:
    """One link writes a third of all lines; by the line, because there are more."""
    measure = Measure("report-skew", "times as long as without", (Target(at_most=1.5, of_agent=True),))
    with tempfile.TemporaryDirectory() as directory:
        plain, skewed = Path(directory, "plain"), Path(directory, "skewed")
        Export(AGENTS, EACH, lines).write(plain)
        Export(AGENTS, EACH, lines * 2 // 3, skewed=True).write(skewed)
        for run in range(runs):
            each = [_spark("report", export, Path(f"{export}-{run}")) for export in (plain, skewed)]
            measure.add("agent", each[1]["seconds"] / each[1]["lines"] * each[0]["lines"] / each[0]["seconds"])
    return measure


def _spark(*arguments: str | Path) -> dict[str, Any]:
    """Each in a process of its own, so that none has been warmed by another."""
    command = [sys.executable, "-m", "tests.bench.spark", *map(str, arguments)]
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": SETTINGS}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    rate = told["lines"] / told["seconds"]
    print(
        f"  {arguments[0]}: {told['lines']} lines in {told['seconds']:.1f} s ({rate:.0f} a second, {told['cpu']:.1f} s"
        f" of CPU), at most {told['peak']:.0f} MiB",
        flush=True,
    )
    return told
