"""Which policy of a broker holds for a queue, and what it does to messages that a link moves there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Final

from agent.core.check.finding import Finding, Level, Topic
from agent.core.check.permissions import escaped
from agent.core.rules.patterns import Pattern

NO_LIMIT: Final = -1
SAFE_RETURNS: Final = 1_000
DEFAULT_LIMIT: Final = 20
_LOSES: Final = ("max-length", "max-length-bytes", "message-ttl", "expires")
_DEAD_LETTERS: Final = ("max-length", "max-length-bytes", "message-ttl")
_LOWEST: Final = frozenset({"delivery-limit", "max-length", "max-length-bytes", "message-ttl", "expires"})
_FOR: Final[Mapping[str, frozenset[str]]] = {
    "classic": frozenset({"all", "queues", "classic_queues"}),
    "quorum": frozenset({"all", "queues", "quorum_queues"}),
    "exchange": frozenset({"all", "exchanges"}),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A queue as a broker lists it, or an exchange, whose type is `exchange` here; `arguments` as JSON."""

    name: str
    type: str = "classic"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effective:
    """The value in force of each key, and where it is from."""

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

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
    for kind, listed in (("policy", policies), ("operator policy", operator_policies)):
        if (winner := _winner(queue, listed)) is not None:
            add(dict(winner["definition"] or {}), f"{kind} {winner['name']!r}")
    return Effective(values, sources)


def _winner(queue: Listed, listed: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    targets = _FOR.get(queue.type, frozenset({"all", "queues"}))
    matching = [each for each in listed if each.get("apply-to", "all") in targets and _matches(each, queue.name)]
    return max(matching, key=lambda each: float(each.get("priority", 0)), default=None)


def _matches(policy: Mapping[str, Any], name: str) -> bool:
    try:
        return bool(Pattern(str(policy["pattern"])).matches(name))
    except ValueError:
        return False


def judge_source(
    where: str, vhost: str, queue: Listed, found: Effective, *, limits_deliveries: bool, is_own: bool
) -> Iterator[Finding]:
    """The queue that a link consumes from; its own one exists for nothing else."""
    limit = found.number("delivery-limit")
    limit = DEFAULT_LIMIT if limit is None and limits_deliveries else limit
    if queue.type == "quorum" and limit is not None and NO_LIMIT < limit < SAFE_RETURNS:
        pattern = "^federation: " if is_own else f"^{escaped(queue.name)}$"
        source = found.sources.get("delivery-limit", "the default of releases from 4.0 on")
        yield Finding(
            Level.WARNING,
            Topic.RELEASE,
            where,
            f"quorum queue {queue.name!r} in vhost {vhost!r} drops a message that was returned {limit} times "
            f"(delivery limit from {source}): a link that fails repeatedly loses messages",
            f"rabbitmqctl set_policy -p {quote(vhost)} --apply-to queues federation-returns {quote(pattern)} "
            "'{\"delivery-limit\": 1000000}', or add the key to the policy that matches this queue",
        )
    if not is_own:
        return
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
