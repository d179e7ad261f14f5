"""Text for people and programs: colours only on a terminal, errors on standard error."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import typer


def say(line: str) -> bool:
    """Whether somebody reads. Colours are dropped where there is no terminal, or where NO_COLOR asks for none."""
    try:
        typer.echo(line, color=False if os.environ.get("NO_COLOR") else None)
    except BrokenPipeError:
        forget()  # whoever read us has left, `head` say; the exit status still tells how it went
        return False
    return True


def complain(*lines: str) -> None:
    for line in lines:
        with suppress(OSError):  # nobody listens; the exit status tells
            typer.echo(line, err=True, color=False)


def say_json(value: Any) -> bool:
    """Indented for a reader; ASCII alone, so that any name in any locale comes out whole."""
    return say(json.dumps(value, indent=2))


def forget() -> None:
    """From here on nothing is printed, not even by the interpreter's last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def paint(text: str, colour: str) -> str:
    return typer.style(text, fg=colour)
