"""Options, arguments and exit statuses that several commands have."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from agent.errors import UsageError

OK: Final = 0
BAD_USE: Final = 2
BAD_CONFIGURATION: Final = 2
CANNOT_START: Final = 3
TROUBLE_WITH_BROKERS: Final = 4
UNKNOWN_LINK: Final = 5
INTERRUPTED: Final = 130

CONFIG_VARIABLE: Final = "FEDERATION_AGENT_CONFIG"
USUAL_CONFIG: Final = Path("/etc/federation-agent/agent.yml")
DEFAULT_CONFIG: Final = f"{CONFIG_VARIABLE} names another default than {USUAL_CONFIG}."
_AGE: Final = re.compile(r"(\d{1,9})([smhd]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def usual_config() -> Path | None:
    """The configuration of a command that is given none; None where it doesn't exist, or the user may not read it."""
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
        help=f"The agent's configuration. {DEFAULT_CONFIG}",
        default_factory=_needed_config,
        show_default=False,
    ),
]
Format = Literal["text", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format: for people or for programs.")]
LogFormatOption = Annotated[
    Literal["auto", "console", "json"] | None,
    typer.Option(help="Format of the log, on standard output (default: the configuration's)."),
]
LogLevelOption = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(help="Lowest level that is logged (default: the configuration's)."),
]
Sort = Literal["name", "backlog", "rate", "age", "forwarded", "oldest", "reconnects"]


def examples(*commands: str) -> str:
    """For the end of a command's help; \\b keeps the lines as they are."""
    return "\n".join(["\b", "Examples:", *(f"  federation-agent {each}" for each in commands)])


def seconds(option: str, age: str | None) -> float | None:
    found = None if age is None else _AGE.fullmatch(age)
    if age is not None and found is None:
        raise UsageError(f"{option} {age!r} is no age: write 90s, 30m, 12h or 7d")
    return None if found is None else float(found[1]) * _UNITS[found[2]]


def with_secrets(option: str, text: str) -> str:
    """Replaces `${env:…}` and `${file:…}`, so that no secret is on the command line. Files are relative to where the
    command runs."""
    from agent.definitions.document.interpolate import Interpolator

    def refuse(_: object, message: str) -> None:
        raise UsageError(f"{option}: {message}")

    return Interpolator(os.environ, ".", refuse, refuse).resolve(text, ())
