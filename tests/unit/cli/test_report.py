"""`report`: what it prints when it is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from agent.cli.options import CANNOT_START
from agent.cli.report import in_short

# As on a host without the packages: nothing was imported before, and nothing finds them.
WITHOUT: Final = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())

from agent.cli.main import run

sys.exit(run(sys.argv[1:]))
"""


def test_where_spark_is_missing_it_says_so_and_how_to_have_it(tmp_path: Path) -> None:
    report = ["report", "--input", str(tmp_path), "--output", str(tmp_path / "tables")]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *report], capture_output=True, text=True, check=False)
    assert done.returncode == CANNOT_START, done.stderr
    assert done.stderr.startswith("report needs Spark, which is not installed: ")
    assert done.stderr.count("\n") == 1


def test_one_of_a_kind_is_singular_and_many_have_commas() -> None:
    told = {"lines": {"read": 1, "bad": 0, "later_schema": 0}, "links": 1, "incidents": 1, "outages": 1}
    assert [*in_short(told)] == [
        "read 1 line: 0 bad, 0 of a later schema",
        "1 link, 1 incident in 1 outage of many links",
    ]
    told = {"lines": {"read": 4_812, "bad": 1_000, "later_schema": 2}, "links": 3_000, "incidents": 0, "outages": 0}
    assert [*in_short(told)] == [
        "read 4,812 lines: 1,000 bad, 2 of a later schema",
        "3,000 links, 0 incidents in 0 outages of many links",
    ]
