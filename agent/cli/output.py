"""Text for people and programs: colours only on a terminal, errors on standard error."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import typer

from agent.core.text.printable import printable


class Ready(str):
    """Text whose control characters are meant: colours, and lines that are broken on purpose."""

    __slots__ = ()


def say(*parts: str) -> bool:
    """Whether somebody reads. Colours are dropped where there is no terminal, or where NO_COLOR asks for none."""
    try:
        typer.echo(line(*parts), color=False if os.environ.get("NO_COLOR") else None)
    except BrokenPipeError:
        forget()  # whoever read us has left, `head` say; the exit status still tells how it went
        return False
    return True


def complain(*lines: str) -> None:
    """Each is one line, whatever names and texts of brokers are in it."""
    for each in lines:
        with suppress(OSError):  # nobody listens; the exit status tells
            typer.echo(printable(each), err=True, color=False)


def say_json(value: Any) -> bool:
    """Indented for a reader; ASCII alone, so that any name in any locale comes out whole."""
    return say(Ready(json.dumps(value, indent=2).replace("\x7f", "\\u007f")))


def forget() -> None:
    """From here on nothing is printed, not even by the interpreter's last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def line(*parts: str) -> Ready:
    """Parts that are not ready may hold anything, and are shown and not sent: only `paint` moves a terminal."""
    return Ready("".join(part if isinstance(part, Ready) else printable(part) for part in parts))


def paint(text: str, colour: str) -> Ready:
    return Ready(typer.style(printable(text), fg=colour))
