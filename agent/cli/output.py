"""Text for people and programs: colours only on a terminal, errors on standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import typer


def say(line: str) -> None:
    """Colours are dropped where standard output is no terminal, or where NO_COLOR asks for none."""
    typer.echo(line, color=False if os.environ.get("NO_COLOR") else None)


def complain(*lines: str) -> None:
    for line in lines:
        typer.echo(line, err=True, color=False)


def say_json(value: Any) -> None:
    """Indented for a reader, whole at once for a program."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def paint(text: str, colour: str) -> str:
    return typer.style(text, fg=colour)
