"""`import-legacy`: a 2.x Erlang configuration in, our YAML out."""

from __future__ import annotations

from pathlib import Path

from agent.cli import output
from agent.definitions.legacy import import_legacy
from agent.definitions.read_file import UnreadableError, read_file
from agent.errors import ConfigurationError, Place, Problem

MAX_BYTES = 4 * 1024 * 1024


def print_imported(path: Path) -> None:
    try:
        text = read_file(str(path), MAX_BYTES)
    except UnreadableError as error:
        raise ConfigurationError([Problem(Place(str(path), 1, 1), str(error))]) from error
    output.say(import_legacy(text, file=str(path)).rstrip("\n"))
