"""The names of the export's directories and files."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final
from urllib.parse import quote

WRITTEN: Final = ".jsonl.part"
LONGEST_AGENT: Final = 190  # file systems allow 255 bytes, and a suffix follows
_HIDDEN: Final = {".": "%2E", "_": "%5F"}  # readers of such directories skip names with this prefix
_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_REST: Final = re.compile(r"-\d{8}T\d{6}\.\d{6}Z-\d{6,}\.jsonl(?:\.part)?")


@dataclass(frozen=True, slots=True)
class FileNames:
    """The names of one run of one agent; `agent` and `started` are safe in file names."""

    agent: str
    started: str

    @classmethod
    def of(cls, agent: str, started: float) -> FileNames:
        moment = datetime.fromtimestamp(started, UTC)
        return cls(safe(agent), f"{moment:%Y%m%dT%H%M%S.%fZ}")

    def written(self, number: int) -> str:
        return f"{self.agent}-{self.started}-{number:06}{WRITTEN}"

    def owns(self, name: str) -> bool:
        """Whether a file of that name belongs to any run of this agent."""
        return name.startswith(self.agent) and _REST.fullmatch(name, len(self.agent)) is not None


def safe(agent: str) -> str:
    """A unique name for each agent, without characters that are special in file names."""
    text = quote(agent, safe="")
    text = _HIDDEN.get(text[0], text[0]) + text[1:]
    if len(text) <= LONGEST_AGENT:
        return text
    return f"{text[:LONGEST_AGENT]}~{hashlib.sha256(agent.encode()).hexdigest()[:16]}"


def day_directory(day: str) -> str:
    return f"date={day}"


def day_of(directory: str) -> date | None:
    """The day whose events are in a directory of that name."""
    found = _DAY.fullmatch(directory)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None
