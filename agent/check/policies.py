"""Which policy of a broker holds for a queue, and what it does to messages that a link moves there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.check.findings import Finding, Level, Topic
from agent.core.rules.patterns import Pattern

NO_LIMIT: Final = -1
_LOSES: Final = ("max-length", "max-length-bytes", "message-ttl", "expires")
_DEAD_LETTERS: Final = ("max-length", "max-length-bytes", "message-ttl")
_LOWEST: Final = frozenset({"delivery-limit", "max-length", "max-length-bytes", "message-ttl", "expires"})
_FOR: Final[Mapping[str, frozenset[str]]] = {
    "classic": frozenset({"all", "queues", "classic_queues"}),
    "quorum": frozenset({"all", "queues", "quorum_queues"}),
    "exchange": frozenset({"all", "exchanges"}),
}
# A policy with one key that a type of queue doesn't know holds for no queue of that type. These are the keys that no
# release from 3.10 to 4.3 knows for it.
_OF_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
_UNKNOWN: Final[Mapping[str, frozenset[str]]] = {
    "classic": _OF_STREAMS | {"delivery-limit", "dead-letter-strategy"},
    "quorum": _OF_STREAMS
    | {"max-priority", "queue-mode", "queue-master-locator"}
    | {"ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure"},
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A queue as a broker lists it, or an exchange, whose type is `exchange` here; `arguments` as JSON. `policy` is the
    name of the one in force, where the broker says it."""

    name: str
    type: str = "classic"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Effective:
    """The value in force of each key, where it is from, and which policies hold."""

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    operator_policy: Mapping[str, Any] | None = None

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def effective(
    queue: Listed, policies: Iterable[Mapping[str, Any]], operator_policies: Iterable[Mapping[str, Any]]
) -> Effective:
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

    add({key.removeprefix("x-"): value for key, value in queue.arguments.items()}, "its arguments")
    policy, operator_policy = _winner(queue, policies, queue.policy), _winner(queue, operator_policies)
    for kind, winner in (("policy", policy), ("operator policy", operator_policy)):
        if winner is not None:
            add(definition_of(winner), f"{kind} {winner['name']!r}")
    return Effective(values, sources, policy, operator_policy)


def definition_of(policy: Mapping[str, Any]) -> dict[str, Any]:
    return dict(policy["definition"] or {})


def holds_for(policy: Mapping[str, Any], queue: Listed) -> bool:
    """Whether it may, if no other one has a higher priority."""
    targets = _FOR.get(queue.type, frozenset({"all", "queues"}))
    if policy.get("apply-to", "all") not in targets or not _matches(policy, queue.name):
        return False
    return _UNKNOWN.get(queue.type, frozenset()).isdisjoint(definition_of(policy))


def _winner(queue: Listed, listed: Iterable[Mapping[str, Any]], told: str | None = None) -> Mapping[str, Any] | None:
    """Of several with one priority, the one that is `told`: which one the broker takes, nothing else shows."""
    matching = [each for each in listed if holds_for(each, queue)]
    return max(matching, key=lambda each: (float(each.get("priority", 0)), each["name"] == told), default=None)


def _matches(policy: Mapping[str, Any], name: str) -> bool:
    try:
        return bool(Pattern(str(policy["pattern"])).matches(name))
    except ValueError:
        return False


def judge_own(where: str, vhost: str, queue: Listed, found: Effective) -> Iterator[Finding]:
    """The queue that exists for a link only."""
    keys = [key for key in _LOSES if found.number(key) is not None and "policy" in found.sources[key]]
    if keys:
        yield Finding(
            Level.WARNING,
            Topic.LIMITS,
            where,
            f"the link's queue {queue.name!r} in vhost {vhost!r} has {', '.join(keys)} by {found.sources[keys[0]]}: "
            "messages that wait for the link may be dropped",
            "change the policy's pattern so that it doesn't match names that begin with 'federation: '",
        )


def judge_probed(where: str, vhost: str, queue: Listed, found: Effective) -> Iterator[Finding]:
    """A link's own queue that probes go through. They never expire, but what the queue drops it dead-letters."""
    target = found.values.get("dead-letter-exchange")
    if not isinstance(target, str):
        return
    if limits := [f"{key} by {found.sources[key]}" for key in _DEAD_LETTERS if found.number(key) is not None]:
        yield Finding(
            Level.WARNING,
            Topic.LIMITS,
            where,
            f"the link's queue {queue.name!r} in vhost {vhost!r} has dead-letter-exchange {target!r} by "
            f"{found.sources['dead-letter-exchange']}, and {', '.join(limits)}: probes that it drops go there, "
            "and may reach queues of users",
            "change the policy's pattern so that it doesn't match names that begin with 'federation: ', or remove "
            "`probe` from the upstream",
        )


def judge_destination(where: str, vhost: str, queue: Listed, found: Effective) -> Iterator[Finding]:
    """A queue that a link's messages go to."""
    bounds = [key for key in ("max-length", "max-length-bytes") if found.number(key) is not None]
    overflow = str(found.values.get("overflow", ""))
    if bounds and overflow.startswith("reject-publish"):
        limits = ", ".join(f"{key} {found.number(key)}" for key in bounds)
        yield Finding(
            Level.WARNING,
            Topic.LIMITS,
            where,
            f"queue {queue.name!r} in vhost {vhost!r} refuses messages when it is full ({limits}, {overflow}, by "
            f"{found.sources[bounds[0]]}): links that publish to it wait then, and messages collect upstream",
            "raise the limit, or watch the queue's length",
        )
