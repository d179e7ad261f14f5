"""What stands in an export's directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def finished(directory: Path) -> list[Path]:
    return sorted(directory.glob("date=*/*.jsonl"), key=lambda path: path.name)


def unfinished(directory: Path) -> list[Path]:
    return sorted(directory.glob("date=*/*.part"))


def events(*paths: Path) -> list[dict[str, Any]]:
    """Every line of the files; each has to be a whole one."""
    found = []
    for path in paths:
        text = path.read_bytes()
        assert text.endswith(b"\n"), path
        found += [json.loads(line) for line in text.splitlines()]
    return found


def numbers(*paths: Path) -> list[int]:
    return [event["seq"] for event in events(*paths)]
