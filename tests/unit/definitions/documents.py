"""Configuration files for tests: written, loaded, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import ConfigurationError

DOWNSTREAM = "downstream: {uri: amqp://localhost}\n"


def write(directory: Path, text: str | bytes, name: str = "agent.yaml") -> str:
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def load(
    directory: Path, text: str | bytes, *, environment: Mapping[str, str] | None = None, strict: bool = True
) -> Configuration:
    return load_configuration(write(directory, text), environment=environment or {}, strict=strict)


def complaints(
    directory: Path, text: str | bytes, *, environment: Mapping[str, str] | None = None, strict: bool = True
) -> list[str]:
    """What is wrong, each as LINE:COLUMN: message; of a good file its warnings."""
    try:
        found = load(directory, text, environment=environment, strict=strict).warnings
    except ConfigurationError as error:
        found = error.problems
    return [str(problem).replace(f"{directory}/", "").removeprefix("agent.yaml:") for problem in found]
