"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="Output format: for people or for programs.")]
Sort = Literal["name", "backlog", "rate", "age", "forwarded", "oldest", "reconnects"]
ConfigOption = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="The agent's configuration.")]
