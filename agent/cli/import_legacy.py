"""`import-legacy`: a 2.x Erlang configuration in, our YAML out."""

from __future__ import annotations

from pathlib import Path

from agent.cli import output
from agent.definitions.document import yaml
from agent.definitions.document.findings import file_error
from agent.definitions.sources.legacy import import_legacy
from agent.read_file import UnreadableError, read_file

MAX_BYTES = 512 * 1024  # far more than any 2.x configuration; parsing more takes seconds


def print_imported(path: Path, *, as_json: bool) -> None:
    try:
        text = read_file(str(path), MAX_BYTES)
    except UnreadableError as error:
        raise file_error(str(path), str(error)) from error
    written = import_legacy(text, file=str(path))
    if as_json:
        tree = yaml.compose(written.encode(), str(path))
        output.say_json({"file": str(path), "yaml": written, "configuration": tree.plain()})
    else:
        output.say(output.Ready(written.rstrip("\n")))
