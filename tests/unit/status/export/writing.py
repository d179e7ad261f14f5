"""Files that a test writes to, and lines to write."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.core.settings import StatusExportSettings
from agent.status.export.files import EventFiles, ExportLine, FileNames

STARTED = 1_800_000_000.25
TODAY = "2027-01-15"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def files(
    directory: Path, *, agent: str = "dc2-a", started: float = STARTED, clock: Clock | None = None, **settings: Any
) -> EventFiles:
    return EventFiles(
        StatusExportSettings(str(directory), **settings), FileNames.of(agent, started), clock=clock or Clock()
    )


def prepared(directory: Path, day: str = TODAY, **more: Any) -> EventFiles:
    made = files(directory, **more)
    made.prepare(day)
    return made


def lines(seqs: Iterable[int], day: str = TODAY, *, size: int = 0, recurs: bool = False) -> list[ExportLine]:
    return [ExportLine(day, b'{"seq":%d,"x":"%s"}\n' % (seq, b"x" * size), recurs) for seq in seqs]


def crash(directory: Path, *, agent: str = "dc2-a") -> None:
    """As a killed process leaves its files: the system closes them, and nothing else happens."""
    for opened in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this list itself
            path = opened.readlink()
            if path.is_relative_to(directory.resolve()) and path.name.startswith(f"{agent}-"):
                os.close(int(opened.name))
