"""The policies of a broker: which of them hold for a queue or an exchange, and the values that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.rules.patterns import Pattern

NO_LIMIT: Final = -1
ARGUMENTS: Final = "its arguments"
_LOWEST: Final = frozenset({"delivery-limit", "max-length", "max-length-bytes", "message-ttl", "expires"})
_APPLY_TO: Final[Mapping[str, frozenset[str]]] = {
    "classic": frozenset({"all", "queues", "classic_queues"}),
    "quorum": frozenset({"all", "queues", "quorum_queues"}),
    "exchange": frozenset({"all", "exchanges"}),
}
# A policy with one key that a type of queue doesn't know holds for no queue of that type. These are the keys that no
# release from 3.10 to 4.3 knows for it.
_OF_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
_UNKNOWN_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "classic": _OF_STREAMS | {"delivery-limit", "dead-letter-strategy"},
    "quorum": _OF_STREAMS
    | {"max-priority", "queue-mode", "queue-master-locator"}
    | {"ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure"},
}


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """A queue, or an exchange, whose type is `exchange` here; `arguments` as JSON. `policy` is the name of the one in
    force, where the broker shows it."""

    name: str
    type: str = "classic"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The value in force of each key, where it is from (`ARGUMENTS`, or a policy by name), and which policies hold."""

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    operator_policy: Mapping[str, Any] | None = None

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def effective_policy(
    target: PolicyTarget, policies: Iterable[Mapping[str, Any]], operator_policies: Iterable[Mapping[str, Any]]
) -> EffectivePolicy:
    """Arguments, the policy and the operator policy together, as brokers do: of limits the lowest holds."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def add(found: Mapping[str, Any], source: str) -> None:
        for key, value in found.items():
            old = values.get(key)
            if old is not None and key in _LOWEST and isinstance(old, int) and isinstance(value, int):
                if old != NO_LIMIT and (value == NO_LIMIT or old <= value):
                    continue
            elif old is not None:
                continue
            values[key], sources[key] = value, source

    add({key.removeprefix("x-"): value for key, value in target.arguments.items()}, ARGUMENTS)
    policy, operator_policy = _winner(target, policies, target.policy), _winner(target, operator_policies)
    for kind, winner in (("policy", policy), ("operator policy", operator_policy)):
        if winner is not None:
            add(definition_of(winner), f"{kind} {winner['name']!r}")
    return EffectivePolicy(values, sources, policy, operator_policy)


def definition_of(policy: Mapping[str, Any]) -> dict[str, Any]:
    return dict(policy["definition"] or {})


def can_hold_for(policy: Mapping[str, Any], target: PolicyTarget) -> bool:
    """True if the policy holds where no other one has a higher priority."""
    allowed = _APPLY_TO.get(target.type, frozenset({"all", "queues"}))
    if policy.get("apply-to", "all") not in allowed:
        return False
    try:
        matches = bool(Pattern(str(policy["pattern"])).matches(target.name))
    except ValueError:
        return False
    return matches and _UNKNOWN_KEYS.get(target.type, frozenset()).isdisjoint(definition_of(policy))


def _winner(
    target: PolicyTarget, policies: Iterable[Mapping[str, Any]], in_force: str | None = None
) -> Mapping[str, Any] | None:
    """Of several with one priority, the one `in_force`: nothing else shows which one the broker takes."""
    matching = [each for each in policies if can_hold_for(each, target)]
    return max(matching, key=lambda each: (float(each.get("priority", 0)), each["name"] == in_force), default=None)
