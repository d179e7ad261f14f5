"""Options that several commands have."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from agent.errors import UsageError


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="Output format: for people or for programs.")]
Sort = Literal["name", "backlog", "rate", "age", "forwarded", "oldest", "reconnects"]
_AGE: Final = re.compile(r"(\d{1,9})([smhd]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def examples(*commands: str) -> str:
    """For the end of a command's help; \\b keeps the lines as they are."""
    return "\n".join(["\b", "Examples:", *(f"  federation-agent {each}" for each in commands)])


def seconds(option: str, age: str | None) -> float | None:
    found = None if age is None else _AGE.fullmatch(age)
    if age is not None and found is None:
        raise UsageError(f"{option} {age!r} is no age: write 90s, 30m, 12h or 7d")
    return None if found is None else float(found[1]) * _UNITS[found[2]]


ConfigOption = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="The agent's configuration.")]
