"""Text for people and programs: colours only on a terminal, errors on standard error.

Why: docs/decisions/0022-text-from-outside.md
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import typer

from agent.core.text import printable


class Ready(str):
    """Text with intended control characters: colours and line breaks."""

    __slots__ = ()


def say(*parts: str) -> bool:
    """Prints; returns False where nobody reads the output. Colours are dropped without a terminal, or with NO_COLOR."""
    try:
        typer.echo(line(*parts), color=False if os.environ.get("NO_COLOR") else None)
    except BrokenPipeError:
        forget()  # the reader of the output, such as `head`, has exited; the exit status still shows the result
        return False
    return True


def complain(*lines: str) -> None:
    """Prints errors, each as one line, whatever names and texts of brokers it contains."""
    for each in lines:
        with suppress(OSError):  # standard error is closed; the exit status shows the result
            typer.echo(printable(each), err=True, color=False)


def say_json(value: Any) -> bool:
    return say(as_json(value))


def as_json(value: Any, indent: int | None = 2) -> Ready:
    """Indented for readers; ASCII only, so that every name is printed completely in any locale."""
    return Ready(json.dumps(value, indent=indent).replace("\x7f", "\\u007f"))


def as_data(value: Any, form: str) -> Ready | None:
    """None where it is for people."""
    match form:
        case "json":
            return as_json(value)
        case "yaml":
            import yaml

            return Ready(yaml.safe_dump(value, sort_keys=False).rstrip("\n"))
    return None


def cut(text: str, width: int) -> str:
    """Shortened where it is wider than that."""
    shown = printable(text)
    return text if len(shown) <= width else shown[: max(1, width - 1)] + "…"


def forget() -> None:
    """Discards all further output, including the interpreter's final flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def line(*parts: str) -> Ready:
    """Joins parts; control characters are escaped in all but `Ready` ones, so only `paint` controls the terminal."""
    return Ready("".join(part if isinstance(part, Ready) else printable(part) for part in parts))


def paint(text: str, colour: str) -> Ready:
    return Ready(typer.style(printable(text), fg=colour))
