"""Objectives as OpenSLO v1 documents, as far as the report can judge them; all else is an error with its place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from agent.errors import Place, Problem

API: Final = "openslo/v1"
AVAILABILITY: Final = "link-availability"
TRANSFER: Final = "transfer-seconds"

_DOCUMENT: Final = {"apiVersion", "kind", "metadata", "spec"}
_SPEC: Final = {"description", "service", "indicatorRef", "timeWindow", "budgetingMethod", "objectives"}
_OBJECTIVE: Final = {"displayName", "op", "value", "target", "targetPercent"}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,3})([dw])")


@dataclass
class Reader:
    """One document's nodes; what is wrong is collected."""

    source: str
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        self.problems.append(Problem(Place(self.source, mark.line + 1, mark.column + 1), message))

    def fields(self, node: yaml.Node | None, known: set[str] | None, parent: yaml.Node) -> dict[str, yaml.Node]:
        """Of a mapping; without `known`, any keys."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node or parent, "give a mapping here")
            return {}
        for key in repeated(node):
            self.wrong(key, f"{key.value}: is there twice")
        for key, _ in node.value:
            if known is not None and key.value not in known:
                self.wrong(key, f"{key.value}: the report can't express this; known are {', '.join(sorted(known))}")
        return {key.value: value for key, value in node.value}

    def only(self, node: yaml.Node | None, parent: yaml.Node, what: str) -> yaml.Node | None:
        if isinstance(node, yaml.SequenceNode) and len(node.value) == 1:
            found: yaml.Node = node.value[0]
            return found
        self.wrong(node or parent, f"{what}: give exactly one")
        return None


def read(root: yaml.Node, *, source: str) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """The objective as our own YAML would have it, by name."""
    reader = Reader(source)
    document = reader.fields(root, _DOCUMENT, root)
    kind = document.get("kind")
    if _text(kind) != "SLO":
        reader.wrong(kind or root, "kind: the report reads SLO only")
    metadata = reader.fields(document.get("metadata"), None, root)
    name = _text(metadata.get("name"))
    if not name:
        reader.wrong(document.get("metadata") or root, "metadata: give a name")
    spec = reader.fields(document.get("spec"), _SPEC, root)
    entry = dict(_entry(reader, spec, document.get("spec") or root))
    return {name or "": entry}, reader.problems


def _entry(reader: Reader, spec: dict[str, yaml.Node], root: yaml.Node) -> Iterator[tuple[str, Any]]:
    method = spec.get("budgetingMethod")
    if _text(method) != "Occurrences":
        reader.wrong(method or root, "budgetingMethod: the report judges Occurrences only")
    yield "days", _days(reader, spec, root)
    objective = reader.only(spec.get("objectives"), root, "objectives")
    if objective is None:
        return
    values = reader.fields(objective, _OBJECTIVE, root)
    yield "target", _target(reader, values, objective)
    indicator = spec.get("indicatorRef")
    if _text(indicator) == TRANSFER:
        if _text(values.get("op")) != "lte":
            reader.wrong(values.get("op") or objective, "op: give lte: messages confirmed within `value` seconds")
        within = _number(values.get("value"))
        if within is None or within <= 0:
            reader.wrong(values.get("value") or objective, "value: give seconds above 0")
        yield "within", within
    elif _text(indicator) != AVAILABILITY:
        reader.wrong(indicator or root, f"indicatorRef: give {AVAILABILITY} or {TRANSFER}")
    elif "op" in values or "value" in values:
        reader.wrong(objective, f"op and value are for {TRANSFER} only")


def _days(reader: Reader, spec: dict[str, yaml.Node], root: yaml.Node) -> int:
    window = reader.only(spec.get("timeWindow"), root, "timeWindow")
    values = reader.fields(window, {"duration", "isRolling"}, root) if window is not None else {}
    if window is not None and _text(values.get("isRolling")) != "true":
        reader.wrong(values.get("isRolling") or window, "isRolling: the report looks back from the end: give true")
    found = _DURATION.fullmatch(_text(values.get("duration")))
    if found is None:
        if window is not None:
            reader.wrong(values.get("duration") or window, "duration: give days or weeks, such as 30d")
        return 1
    return int(found[1]) * (7 if found[2] == "w" else 1)


def _target(reader: Reader, values: dict[str, yaml.Node], objective: yaml.Node) -> float | None:
    if ("target" in values) == ("targetPercent" in values):
        reader.wrong(objective, "give one of target, such as 0.999, and targetPercent, such as 99.9")
        return 99.9
    share = _number(values.get("target"))
    percent = round(100 * share, 9) if share is not None else _number(values.get("targetPercent"))
    if percent is None or not 0 < percent < 100:
        reader.wrong(objective, "give a target above 0 and below 1, or a targetPercent above 0 and below 100")
    return percent


def repeated(node: yaml.Node) -> Iterator[yaml.Node]:
    """Keys of a mapping that are there before: PyYAML would take the last one without a word."""
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                yield key
            seen.add(key.value)


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _number(node: yaml.Node | None) -> float | None:
    try:
        found = float(_text(node))
    except ValueError:
        return None
    return found if math.isfinite(found) else None
