"""`objectives`: the file that `report --objectives` reads, as rules for Prometheus."""

from __future__ import annotations

from pathlib import Path

from agent.amqp.data.target import TRANSFER_BOUNDS
from agent.cli import output
from agent.errors import ConfigurationError, Place, Problem
from agent.pipeline.objectives import parse_objectives, prometheus_rules
from agent.read_file import UnreadableError, read_file

MAX_BYTES = 256 * 1024


def print_rules(path: Path) -> None:
    try:
        text = read_file(str(path), MAX_BYTES).decode()
    except UnreadableError as error:
        raise ConfigurationError([Problem(Place(str(path)), str(error))]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([Problem(Place(str(path)), "not UTF-8")]) from error
    objectives = parse_objectives(text, source=str(path))
    output.say(output.Ready(prometheus_rules(objectives, TRANSFER_BOUNDS, source=str(path)).rstrip("\n")))
