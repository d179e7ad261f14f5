"""Options that several commands have."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from agent.errors import UsageError


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="Output format: for people or for programs.")]
CONFIG_VARIABLE: Final = "FEDERATION_AGENT_CONFIG"
USUAL_CONFIG: Final = Path("/etc/federation-agent/agent.yml")
WITHOUT_IT: Final = f"{CONFIG_VARIABLE} names another default than {USUAL_CONFIG}."


def usual_config() -> Path | None:
    """What a command reads that is given no configuration; None where there is none, or the user may not read it."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    return USUAL_CONFIG if os.access(USUAL_CONFIG, os.R_OK) else None


def _needed_config() -> Path:
    found = usual_config()
    if found is None:
        raise UsageError(f"Missing option '-c' / '--config', and {CONFIG_VARIABLE} isn't set (see --help)")
    return found


ConfigOption = Annotated[
    Path,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help=f"The agent's configuration. {WITHOUT_IT}",
        default_factory=_needed_config,
        show_default=False,
    ),
]
