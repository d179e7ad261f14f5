"""Prints the table of docs/reliability.md: `python -m tests.faults.table 3.10.8=FILE 4.3.6=FILE`, of files that
`make faults` wrote where FEDERATION_AGENT_FAULTS_TABLE named one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def read(file: str) -> dict[str, dict[str, Any]]:
    """Of each fault its last row."""
    rows = (json.loads(line) for line in Path(file).read_text().splitlines())
    return {row["fault"]: row for row in rows}


def cell(row: dict[str, Any] | None, key: str) -> str:
    if row is None:
        return ""
    return f"{max(0.0, row[key]):.1f} s" if key == "flows again" else str(row[key])


def lines(releases: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    names = list(dict.fromkeys(fault for rows in releases.values() for fault in rows))
    heads = ["fault", *(f"{key}, {release}" for key in ("duplicated", "flows again") for release in releases)]
    written = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name in names:
        cells = [cell(rows.get(name), key) for key in ("duplicated", "flows again") for rows in releases.values()]
        written.append(f"| {name} | {' | '.join(cells)} |")
    lost = sum(row["missing"] + row["out of order"] for rows in releases.values() for row in rows.values())
    return [*written, "", f"Missing or out of order: {lost}."]


if __name__ == "__main__":
    found = (argument.partition("=") for argument in sys.argv[1:])
    print("\n".join(lines({release: read(file) for release, _, file in found})))  # noqa: T201
