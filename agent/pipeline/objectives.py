"""Objectives for links: read from YAML or OpenSLO documents, and written as rules for Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import yaml

from agent.errors import ConfigurationError, Place, Problem
from agent.pipeline.schema import BUCKETS, EXPECTED, Bucket

ALARMS = (("1h", "5m", 14.4), ("6h", "30m", 6.0), ("3d", "6h", 1.0))
"""If the burn rates of both windows are above the number, the remaining budget is being used up too fast."""

LEAST_MESSAGES: Final = 100
"""Messages in the longer window; of fewer, a single late one would be an alarm."""

_KEYS: Final = {"target", "days", "within"}

_AVAILABILITY: Final = "link-availability"
_TRANSFER: Final = "transfer-seconds"
_TOP_LEVEL: Final = {"apiVersion", "kind", "metadata", "spec"}
_SPEC: Final = {"description", "service", "indicatorRef", "timeWindow", "budgetingMethod", "objectives"}
_OBJECTIVE: Final = {"displayName", "op", "value", "target", "targetPercent"}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,3})([dw])")

_LINK_LABELS: Final = "group, kind, vhost, name, upstream"
_WINDOWS: Final = tuple(dict.fromkeys(window for alarm in ALARMS for window in alarm[:2]))
_UP: Final = "link:federation_agent_up:max"
_EXPECTED: Final = "link:federation_agent_expected:max"
_SEVERITIES: Final = {"1h": "critical", "6h": "critical", "3d": "warning"}
_Rule = dict[str, Any]


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


USUAL: Final = (Objective("availability", 99.9),)


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
    if duplicates := [*_duplicate_keys(roots[0], source=source)] if roots else []:
        raise ConfigurationError(duplicates)
    entries = document.get("objectives") if isinstance(document, dict) and set(document) == {"objectives"} else None
    if not isinstance(entries, dict) or not entries:
        text = "give objectives by name, such as `objectives: {availability: {target: 99.9}}`, and no other key"
        raise ConfigurationError([Problem(Place(source), text)])
    return _checked(entries, source=source)


def _duplicate_keys(node: yaml.Node, *, source: str) -> Iterator[Problem]:
    """A problem for each repeated key of this mapping, and of those in it."""
    for key in _repeated_keys(node):
        yield Problem(_place(key, source), f"{key.value}: is there twice")
    for _, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield from _duplicate_keys(value, source=source)


def _place(node: yaml.Node, source: str) -> Place:
    return Place(source, node.start_mark.line + 1, node.start_mark.column + 1)


def _repeated_keys(node: yaml.Node) -> Iterator[yaml.Node]:
    """Keys of a mapping that are there before: PyYAML would take the last one without an error."""
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                yield key
            seen.add(key.value)


def _is_openslo(root: yaml.Node) -> bool:
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    return any((key.value, value.value) == ("apiVersion", "openslo/v1") for key, value in pairs)


def _from_openslo(roots: list[yaml.Node], *, source: str) -> tuple[Objective, ...]:
    entries: dict[Any, Any] = {}
    documents = _OpenSLODocuments(source)
    for root in roots:
        name, entry = _openslo_entry(documents, root)
        if name in entries:
            place = Place(source, root.start_mark.line + 1, 1)
            documents.problems.append(Problem(place, f"objective {name!r} is there twice"))
        entries[name] = entry
    if documents.problems:
        raise ConfigurationError(documents.problems)
    return _checked(entries, source=source)


def _checked(entries: dict[Any, Any], *, source: str) -> tuple[Objective, ...]:
    messages = [message for name, entry in entries.items() for message in _entry_problems(name, entry)]
    if messages:
        raise ConfigurationError([Problem(Place(source), message) for message in messages])
    return tuple(
        Objective(str(name), float(entry["target"]), entry.get("days", 30), entry.get("within"))
        for name, entry in entries.items()
    )


def _entry_problems(name: Any, entry: Any) -> Iterator[str]:
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


@dataclass
class _OpenSLODocuments:
    """The nodes of a file's documents; what is wrong is collected."""

    source: str
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, node: yaml.Node, message: str) -> None:
        self.problems.append(Problem(_place(node, self.source), message))

    def fields(self, node: yaml.Node | None, known: set[str] | None, parent: yaml.Node) -> dict[str, yaml.Node]:
        """The fields of a mapping, by key; without `known`, any keys are accepted."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node or parent, "give a mapping here")
            return {}
        for key in _repeated_keys(node):
            self.wrong(key, f"{key.value}: is there twice")
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.wrong(key, "give a name as the key")
            elif known is not None and key.value not in known:
                self.wrong(key, f"{key.value}: the report can't express this; known are {', '.join(sorted(known))}")
        return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}

    def only(self, node: yaml.Node | None, parent: yaml.Node, what: str) -> yaml.Node | None:
        if isinstance(node, yaml.SequenceNode) and len(node.value) == 1:
            found: yaml.Node = node.value[0]
            return found
        self.wrong(node or parent, f"{what}: give exactly one")
        return None


def _openslo_entry(document: _OpenSLODocuments, root: yaml.Node) -> tuple[str, dict[str, Any]]:
    """The name of the objective, and the objective as our own YAML would have it. What the report can't judge is an
    error with its place."""
    fields = document.fields(root, _TOP_LEVEL, root)
    kind = fields.get("kind")
    if _text(kind) != "SLO":
        document.wrong(kind or root, "kind: the report reads SLO only")
    metadata = document.fields(fields.get("metadata"), None, root)
    name = _text(metadata.get("name"))
    if not name:
        document.wrong(fields.get("metadata") or root, "metadata: give a name")
    spec = document.fields(fields.get("spec"), _SPEC, root)
    return name, dict(_entry(document, spec, fields.get("spec") or root))


def _entry(document: _OpenSLODocuments, spec: dict[str, yaml.Node], root: yaml.Node) -> Iterator[tuple[str, Any]]:
    method = spec.get("budgetingMethod")
    if _text(method) != "Occurrences":
        document.wrong(method or root, "budgetingMethod: the report judges Occurrences only")
    yield "days", _days(document, spec, root)
    objective = document.only(spec.get("objectives"), root, "objectives")
    if objective is None:
        return
    values = document.fields(objective, _OBJECTIVE, root)
    yield "target", _target(document, values, objective)
    indicator = spec.get("indicatorRef")
    if _text(indicator) == _TRANSFER:
        if _text(values.get("op")) != "lte":
            document.wrong(values.get("op") or objective, "op: give lte: messages confirmed within `value` seconds")
        within = _number(values.get("value"))
        if within is None or within <= 0:
            document.wrong(values.get("value") or objective, "value: give seconds above 0")
        yield "within", within
    elif _text(indicator) != _AVAILABILITY:
        document.wrong(indicator or root, f"indicatorRef: give {_AVAILABILITY} or {_TRANSFER}")
    elif "op" in values or "value" in values:
        document.wrong(objective, f"op and value are for {_TRANSFER} only")


def _days(document: _OpenSLODocuments, spec: dict[str, yaml.Node], root: yaml.Node) -> int | None:
    window = document.only(spec.get("timeWindow"), root, "timeWindow")
    if window is None:
        return None
    values = document.fields(window, {"duration", "isRolling"}, root)
    if _text(values.get("isRolling")) != "true":
        document.wrong(values.get("isRolling") or window, "isRolling: the report looks back from the end: give true")
    found = _DURATION.fullmatch(_text(values.get("duration")))
    if found is None:
        document.wrong(values.get("duration") or window, "duration: give days or weeks, such as 30d")
        return None
    return int(found[1]) * (7 if found[2] == "w" else 1)


def _target(document: _OpenSLODocuments, values: dict[str, yaml.Node], objective: yaml.Node) -> float | None:
    if ("target" in values) == ("targetPercent" in values):
        document.wrong(objective, "give one of target, such as 0.999, and targetPercent, such as 99.9")
        return None
    share = _number(values.get("target"))
    percent = round(100 * share, 9) if share is not None else _number(values.get("targetPercent"))
    if percent is None or not 0 < percent < 100:
        document.wrong(objective, "give a target above 0 and below 1, or a targetPercent above 0 and below 100")
    return percent


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _number(node: yaml.Node | None) -> float | None:
    try:
        found = float(_text(node))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def prometheus_rules(objectives: Sequence[Objective], bounds: Sequence[float], *, source: str) -> str:
    """A file of rules that record the shares of the table `slo` as they happen, and of alerts where a budget is used up
    too fast. `bounds` are those of the histogram of transfer times."""
    rules = [*_time_rules()] if any(one.kind is ObjectiveKind.TIME for one in objectives) else []
    for one in objectives:
        if one.kind is ObjectiveKind.MESSAGES:
            rules += _message_rules(one, _bound(one, bounds, source=source))
    alerts = [rule for one in objectives for rule in _alerts(one)]
    groups = [
        {"name": "federation-agent-objectives", "rules": rules},
        {"name": "federation-agent-objective-alerts", "rules": alerts},
    ]
    return yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000, allow_unicode=True)


def _time_rules() -> Iterator[_Rule]:
    """The rules for time. As in the report, the best status that an agent of the group has counts, and pauses don't."""
    known = [status for status, bucket in BUCKETS.items() if bucket in EXPECTED]
    up = [status for status in known if BUCKETS[status] is Bucket.UP]
    for name, states in ((_UP, up), (_EXPECTED, known)):
        state = f'federation_agent_link_state{{state=~"{"|".join(states)}"}}'
        yield {"record": name, "expr": f"max by ({_LINK_LABELS}) ({_grouped(state)})"}
    for window in _WINDOWS:
        share = f"sum_over_time({_UP}[{window}]) / (sum_over_time({_EXPECTED}[{window}]) > 0)"
        yield {"record": f"link:federation_agent_bad_time:ratio{window}", "expr": f"1 - {share}"}


def _message_rules(one: Objective, bound: float) -> Iterator[_Rule]:
    for window in _WINDOWS:
        every = _increase("count", window)
        in_time = _increase(f'bucket{{le="{bound!r}"}}', window)
        labels = {"objective": one.name}
        name = f"link:federation_agent_late_messages:ratio{window}"
        yield {"record": name, "expr": f"1 - {in_time} / ({every} > 0)", "labels": labels}


def _increase(part: str, window: str) -> str:
    return f"sum by ({_LINK_LABELS}) ({_grouped(f'increase(federation_agent_transfer_seconds_{part}[{window}])')})"


def _grouped(series: str) -> str:
    """The series with the label of the agent's group: links of two clusters may have the same names."""
    return f"{series} * on (job, instance) group_left (group) federation_agent_info"


def _bound(one: Objective, bounds: Sequence[float], *, source: str) -> float:
    """The highest bound that is not above `within`, as in the report."""
    found = max((bound for bound in bounds if bound <= (one.within or 0)), default=None)
    if found is None:
        message = f"objective {one.name!r}: within: give at least {min(bounds):g}, the shortest time that is measured"
        raise ConfigurationError([Problem(Place(source), message)])
    return found


def _alerts(one: Objective) -> Iterator[_Rule]:
    of_time = one.kind is ObjectiveKind.TIME
    for long, short, rate in ALARMS:
        most = f"{rate:g} * {(100 - one.target) / 100:.10g}"
        name = f"link:federation_agent_{'bad_time' if of_time else 'late_messages'}:ratio"
        chosen = "" if of_time else f'{{objective="{_quoted(one.name)}"}}'
        # A link that is younger than the shorter window, or passes few messages, has too little to judge by.
        enough = f"({_EXPECTED} offset {short}) == 1" if of_time else f"{_increase('count', long)} >= {LEAST_MESSAGES}"
        over = " and ".join(f"{name}{window}{chosen} > {most}" for window in (long, short))
        yield {
            "alert": "FederationObjectiveBurns",
            "expr": f"{over} and on ({_LINK_LABELS}) {enough}",
            "labels": {"severity": _SEVERITIES[long], "objective": one.name, "window": long},
            "annotations": {
                "summary": "{{ $labels.kind }} link {{ $labels.name }} from {{ $labels.upstream }} uses up the budget "
                f"of its objective {_literal(one.name)}",
                "description": f"In the last {long} and the last {short} more than {rate:g} times as much was used of "
                f"the budget as {one.target:g} % in {one.days} days allow. `federation-agent describe` and the agent's "
                "page show what is wrong with the link.",
            },
        }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _literal(text: str) -> str:
    """The text as a literal within a template of Prometheus."""
    return '{{ "' + _quoted(text) + '" }}' if "{{" in text else text
