"""Prometheus rules for objectives: the shares of time and messages of the table `slo`, recorded as they happen, and
alerts where a budget is used up too fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from agent.errors import ConfigurationError, Place, Problem
from agent.pipeline.schema import BUCKETS, Bucket
from agent.pipeline.tables.objectives import ALARMS, Objective, ObjectiveKind

LEAST: Final = 100
"""Messages in the longer window; of fewer, a single late one would be an alarm."""

_LINK: Final = "group, kind, vhost, name, upstream"
_WINDOWS: Final = tuple(dict.fromkeys(window for alarm in ALARMS for window in alarm[:2]))
_UP: Final = "link:federation_agent_up:max"
_EXPECTED: Final = "link:federation_agent_expected:max"
_SEVERITIES: Final = {"1h": "critical", "6h": "critical", "3d": "warning"}

Rule = dict[str, Any]


def prometheus(objectives: Sequence[Objective], bounds: Sequence[float], *, source: str) -> str:
    """A file of rules; `bounds` are those of the histogram of transfer times."""
    rules = [*(_of_time() if any(one.kind is ObjectiveKind.TIME for one in objectives) else ())]
    for one in objectives:
        if one.kind is ObjectiveKind.MESSAGES:
            rules += _of_messages(one, _bound(one, bounds, source=source))
    alerts = [rule for one in objectives for rule in _alerts(one)]
    groups = [
        {"name": "federation-agent-objectives", "rules": rules},
        {"name": "federation-agent-objective-alerts", "rules": alerts},
    ]
    return yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000, allow_unicode=True)


def _of_time() -> Iterator[Rule]:
    """As in the report, the best status that an agent of the group has counts, and pauses don't."""
    known = [status for status, bucket in BUCKETS.items() if bucket in (Bucket.UP, Bucket.DEGRADED, Bucket.DOWN)]
    up = [status for status in known if BUCKETS[status] is Bucket.UP]
    for name, states in ((_UP, up), (_EXPECTED, known)):
        state = f'federation_agent_link_state{{state=~"{"|".join(states)}"}}'
        yield {"record": name, "expr": f"max by ({_LINK}) ({_grouped(state)})"}
    for window in _WINDOWS:
        share = f"sum_over_time({_UP}[{window}]) / (sum_over_time({_EXPECTED}[{window}]) > 0)"
        yield {"record": f"link:federation_agent_bad_time:ratio{window}", "expr": f"1 - {share}"}


def _of_messages(one: Objective, bound: float) -> Iterator[Rule]:
    for window in _WINDOWS:
        every = _increase("count", window)
        in_time = _increase(f'bucket{{le="{bound!r}"}}', window)
        labels = {"objective": one.name}
        name = f"link:federation_agent_late_messages:ratio{window}"
        yield {"record": name, "expr": f"1 - {in_time} / ({every} > 0)", "labels": labels}


def _increase(part: str, window: str) -> str:
    return f"sum by ({_LINK}) ({_grouped(f'increase(federation_agent_transfer_seconds_{part}[{window}])')})"


def _grouped(series: str) -> str:
    """With the label of the agent's group: links of two clusters may have the same names."""
    return f"{series} * on (job, instance) group_left (group) federation_agent_info"


def _bound(one: Objective, bounds: Sequence[float], *, source: str) -> float:
    """The highest that is not above `within`, as in the report."""
    found = max((bound for bound in bounds if bound <= (one.within or 0)), default=None)
    if found is None:
        message = f"objective {one.name!r}: within: give at least {min(bounds):g}, the shortest time that is measured"
        raise ConfigurationError([Problem(Place(source), message)])
    return found


def _alerts(one: Objective) -> Iterator[Rule]:
    of_time = one.kind is ObjectiveKind.TIME
    for long, short, rate in ALARMS:
        most = f"{rate:g} * {(100 - one.target) / 100:.10g}"
        name = f"link:federation_agent_{'bad_time' if of_time else 'late_messages'}:ratio"
        chosen = "" if of_time else f'{{objective="{_quoted(one.name)}"}}'
        # A link that is younger than the shorter window, or passes few messages, has too little to judge by.
        enough = f"({_EXPECTED} offset {short}) == 1" if of_time else f"{_increase('count', long)} >= {LEAST}"
        over = " and ".join(f"{name}{window}{chosen} > {most}" for window in (long, short))
        yield {
            "alert": "FederationObjectiveBurns",
            "expr": f"{over} and on ({_LINK}) {enough}",
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
    """Within a template of Prometheus."""
    return '{{ "' + _quoted(text) + '" }}' if "{{" in text else text
