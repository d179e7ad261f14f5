"""Objectives for links from a YAML file; all errors are reported at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from agent.errors import ConfigurationError, Place, Problem
from agent.pipeline.tables import openslo


class ObjectiveKind(StrEnum):
    TIME = "time"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Objective:
    """`target` percent of the time up, or of messages confirmed `within` seconds, over `days`."""

    name: str
    target: float
    days: int = 30
    within: float | None = None

    @property
    def kind(self) -> ObjectiveKind:
        return ObjectiveKind.TIME if self.within is None else ObjectiveKind.MESSAGES


ALARMS = (("1h", "5m", 14.4), ("6h", "30m", 6.0), ("3d", "6h", 1.0))
"""If the burn rates of both windows are above the number, the remaining budget is being used up too fast."""
USUAL = (Objective("availability", 99.9),)
_KEYS = {"target", "days", "within"}


def parse_objectives(text: str, *, source: str) -> tuple[Objective, ...]:
    """`objectives: {NAME: {target: 99.9, days: 30, within: 5}}`; `within` makes it one of messages."""
    try:
        roots = [*yaml.compose_all(text, yaml.SafeLoader)]
        if any(_is_openslo(root) for root in roots):
            return _from_openslo(roots, source=source)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(source, mark.line + 1, mark.column + 1) if mark else Place(source)
        raise ConfigurationError([Problem(place, "not YAML: fix the syntax here")]) from error
    if twice := [*_twice(roots[0], source=source)] if roots else []:
        raise ConfigurationError(twice)
    entries = document.get("objectives") if isinstance(document, dict) and set(document) == {"objectives"} else None
    if not isinstance(entries, dict) or not entries:
        said = "give objectives by name, such as `objectives: {availability: {target: 99.9}}`, and no other key"
        raise ConfigurationError([Problem(Place(source), said)])
    return _judged(entries, source=source)


def _twice(node: yaml.Node, *, source: str) -> Iterator[Problem]:
    """Keys of this mapping, and of those in it."""
    for key in openslo.repeated(node):
        place = Place(source, key.start_mark.line + 1, key.start_mark.column + 1)
        yield Problem(place, f"{key.value}: is there twice")
    for _, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield from _twice(value, source=source)


def _is_openslo(root: yaml.Node) -> bool:
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    return any((key.value, value.value) == ("apiVersion", openslo.API) for key, value in pairs)


def _from_openslo(roots: list[yaml.Node], *, source: str) -> tuple[Objective, ...]:
    entries: dict[Any, Any] = {}
    problems: list[Problem] = []
    for root in roots:
        entry, wrong = openslo.read(root, source=source)
        problems += wrong
        problems += [
            Problem(Place(source, root.start_mark.line + 1, 1), f"objective {name!r} is there twice")
            for name in entries.keys() & entry.keys()
        ]
        entries |= entry
    if problems:
        raise ConfigurationError(problems)
    return _judged(entries, source=source)


def _judged(entries: dict[Any, Any], *, source: str) -> tuple[Objective, ...]:
    problems = [Problem(Place(source), message) for name, entry in entries.items() for message in _wrong(name, entry)]
    if problems:
        raise ConfigurationError(problems)
    return tuple(
        Objective(str(name), float(entry["target"]), entry.get("days", 30), entry.get("within"))
        for name, entry in entries.items()
    )


def _wrong(name: Any, entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"objective {name!r}: give its keys: {', '.join(sorted(_KEYS))}"
        return
    yield from (
        f"objective {name!r}: unknown key {key!r}; known keys are {', '.join(sorted(_KEYS))}"
        for key in entry.keys() - _KEYS
    )
    if not _is_number(entry.get("target")) or not 0 < entry["target"] < 100:
        yield f"objective {name!r}: target: give a percentage above 0 and below 100"
    days = entry.get("days", 30)
    if not isinstance(days, int) or isinstance(days, bool) or days < 1:
        yield f"objective {name!r}: days: give a whole number, at least 1"
    if "within" in entry and (not _is_number(entry["within"]) or entry["within"] <= 0):
        yield f"objective {name!r}: within: give seconds above 0"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
