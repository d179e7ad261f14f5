"""What the report costs beside reading and counting the same lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.bench import Bench
from tests.bench.exports import INTERVAL, Export
from tests.bench.table import Measure, Target

LINES, LINES_QUICK = (1_000_000, 5_000_000, 20_000_000), (1_000_000,)
AGENTS, EACH = 20, 50
DAYS, STEPS_OF_DAY = 91, 86_400 // INTERVAL
LINKS_OF_DAYS, LINKS_OF_DAYS_QUICK = 11, 2
FILES, LINKS_OF_FILES = 1000, 999
SETTINGS = (
    "--master local[2] --driver-memory 2g --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
    "pyspark-shell"
)


def report(bench: Bench) -> list[Measure]:
    """`report` by the million lines on local[2] with 2 GiB, beside Spark that reads and counts them; and with skew, in
    many files, and when a day is added to many."""
    measures = [_of(lines, bench.runs) for lines in (LINES if bench.full else LINES_QUICK)]
    links = LINKS_OF_DAYS if bench.full else LINKS_OF_DAYS_QUICK
    return [*measures, _skew(LINES_QUICK[0], bench.runs), _files(bench.runs), _day(links, bench.runs)]


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


def _files(runs: int) -> Measure:
    """The same lines in many files and in one."""
    measure = Measure("report-files", "times as long as from one file", (Target(at_most=1.5, of_agent=True),))
    with tempfile.TemporaryDirectory() as directory:
        one, many = Path(directory, "one"), Path(directory, "many")
        for export, steps in ((one, FILES), (many, 1)):
            Export(1, LINKS_OF_FILES, FILES * (LINKS_OF_FILES + 1), steps_per_file=steps).write(export)
        for run in range(runs):
            each = [_spark("report", export, Path(f"{export}-{run}"))["seconds"] for export in (one, many)]
            measure.add("agent", each[1] / each[0])
    return measure


def _day(links: int, runs: int) -> Measure:
    """A day added to the report of many, beside a report of that day alone."""
    measure = Measure("report-day", "times as long as that day alone", (Target(at_most=1.5, of_agent=True),))
    with tempfile.TemporaryDirectory() as directory:
        export, alone, told = Path(directory, "export"), Path(directory, "alone"), Path(directory, "report")
        Export(1, links, DAYS * STEPS_OF_DAY * (links + 1)).write(export)
        last = max(export.iterdir())
        alone.mkdir()
        last.rename(alone / last.name)
        _spark("report", export, told)
        shutil.copytree(alone / last.name, last)
        for run in range(runs):
            by_itself = _spark("report", alone, Path(directory, f"alone-{run}"))["seconds"]
            grown = Path(directory, f"grown-{run}")
            shutil.copytree(told, grown, symlinks=True)
            measure.add("agent", _spark("report", export, grown)["seconds"] / by_itself)
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
