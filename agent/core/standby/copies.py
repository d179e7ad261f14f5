"""What a standby needs beyond an ordinary copy: bindings that wait, an end for old messages, and doubts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.core.migration.difference import MigrationPlan
from agent.core.migration.objects import Body, ClusterObjects, ObjectKey, ObjectKind, Objects, is_of_federation
from agent.core.migration.policies import policies_in_force, policy_key
from agent.core.standby.settings import STANDBY, StandbySettings

LONGEST_PATTERN: Final = 1_000
"""Bytes; 4.3 takes 1,024."""
ABOVE_OTHERS: Final = 1_000_000
"""The priority of the policies that limit: of several operator policies one is in force."""
_DEAD_LETTERS: Final = "dead-letter-exchange"
_LIMITS: Final = ("max-length", "max-length-bytes")
_EXPIRE: Final = ("message-ttl", "expires", *_LIMITS)


@dataclass(frozen=True, slots=True)
class StandbyDoubt:
    """What may make a queue's copy another one than its original, or a promotion repeat or lack something."""

    queue: ObjectKey
    doubt: str


@dataclass(frozen=True, slots=True)
class StandbyCopies:
    """What follows from the source's definitions. `kept` are the queues of which old messages may be dropped."""

    held_back: tuple[ObjectKey, ...] = ()
    kept: tuple[ObjectKey, ...] = ()
    doubts: tuple[StandbyDoubt, ...] = ()


def copies_of(
    settings: StandbySettings, source: ClusterObjects, wanted: Objects, clock: Callable[[], float] = lambda: 0.0
) -> StandbyCopies:
    """`wanted` is what the standby is to have of the source."""
    queues = sorted((key for key in wanted if key.kind is ObjectKind.QUEUE), key=str)
    held_back = tuple(key for key in wanted if _is_held_back(key, settings, source.objects))
    in_force = policies_in_force(source.objects, queues, clock)
    limits = {key: _limits(wanted[key], key, in_force, source.objects) for key in queues}
    fed = _fed(settings, source.objects)
    found = [StandbyDoubt(key, doubt) for key in queues for doubt in _doubts(limits[key], settings, is_fed=key in fed)]
    kept = tuple(key for key in queues if (known := limits[key]) is not None and _DEAD_LETTERS not in known)
    return StandbyCopies(held_back, kept, tuple(found))


def without(plan: MigrationPlan, held_back: Iterable[ObjectKey]) -> MigrationPlan:
    left = frozenset(held_back)
    return replace(plan, actions=tuple(action for action in plan.actions if action.key not in left))


def _is_held_back(key: ObjectKey, settings: StandbySettings, objects: Objects) -> bool:
    """What one exchange routes to another comes by the other's own link already: bound here, it would come twice."""
    return key.kind is ObjectKind.BINDING and key.to_exchange and _has_link(key.ends[1], settings, objects)


def _has_link(exchange: ObjectKey, settings: StandbySettings, objects: Objects) -> bool:
    if is_of_federation(exchange, objects):
        return False
    return settings.federates(exchange, is_internal=objects.get(exchange, {}).get("internal") is True)


def _limits(
    body: Body, key: ObjectKey, in_force: Mapping[ObjectKey, str | None], objects: Objects
) -> Mapping[str, Any] | None:
    """The settings of a queue that arguments and policies share, by their names in policies; None if its policy isn't
    known."""
    policy = in_force.get(key, "")
    if policy is None:
        return None
    of_policy = objects[policy_key(key.vhost, policy)]["definition"] if policy else {}
    return {**of_policy, **{name.removeprefix("x-"): value for name, value in body["arguments"].items()}}


def _fed(settings: StandbySettings, objects: Objects) -> set[ObjectKey]:
    """The queues that an exchange with a link is bound to, or an exchange without one that gets messages from such."""
    bindings = [key for key in objects if key.kind is ObjectKind.BINDING]
    by_source: dict[ObjectKey, list[ObjectKey]] = {}
    for key in bindings:
        by_source.setdefault(key.ends[0], []).append(key.ends[1])
    waiting = [each for each in by_source if each.vhost in settings.vhosts and _has_link(each, settings, objects)]
    found: set[ObjectKey] = set(waiting)
    while waiting:
        for each in by_source.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _doubts(limits: Mapping[str, Any] | None, settings: StandbySettings, *, is_fed: bool) -> Iterator[str]:
    if not is_fed:
        yield "no chosen exchange is bound to it: what is published to it by its name can't be copied"
    if limits is None:
        yield "which policy is in force isn't known, so it may keep messages without end"
        return
    has_end = [name for name in _EXPIRE if name in limits]
    if _DEAD_LETTERS in limits:
        if settings.keep is not None:
            yield "it keeps messages without end: it has a dead-letter exchange, to which they would expire"
        if has_end:
            yield f"copies that leave it by {', '.join(has_end)} are dead-lettered here, too: they come twice"
    if "expires" in limits:
        yield "it expires unless it is used, and nobody uses it here: it is deleted with its messages, and made again"
    if any(name in limits for name in _LIMITS):
        is_refusing = str(limits.get("overflow", "")).startswith("reject-publish")
        what = "its link waits once it is full" if is_refusing else "it drops its oldest, which may be unconsumed"
        yield f"it has a maximum length and holds what is consumed, too: {what}"
    if limits.get("queue-type") == "stream":
        yield "consumers of a stream keep their offsets at the source: they mean nothing here"


def keep_policies(settings: StandbySettings, kept: Iterable[ObjectKey]) -> dict[tuple[str, str], Body]:
    """Operator policies that let messages expire, by vhost and name: they go with any other policy. They name each
    queue, so that no other is concerned."""
    if settings.keep is None:
        return {}
    by_vhost: dict[str, list[str]] = {}
    for key in kept:
        by_vhost.setdefault(key.vhost, []).append(re.escape(key.name))
    found: dict[tuple[str, str], Body] = {}
    for vhost, names in by_vhost.items():
        for number, pattern in enumerate(_patterns(sorted(names))):
            found[vhost, f"{STANDBY} {number + 1}" if number else STANDBY] = {
                "pattern": pattern,
                "apply-to": "queues",
                "definition": {"message-ttl": round(settings.keep * 1000)},
                "priority": ABOVE_OTHERS,
            }
    return found


def _patterns(names: Iterable[str]) -> Iterator[str]:
    together: list[str] = []
    size = 0
    for name in names:
        more = len(name.encode(errors="surrogateescape")) + 1
        if together and size + more > LONGEST_PATTERN:
            yield f"^(?:{'|'.join(together)})\\z"
            together, size = [], 0
        together.append(name)
        size += more
    if together:
        yield f"^(?:{'|'.join(together)})\\z"


def bindings_as_json(held_back: Iterable[ObjectKey], wanted: Objects) -> list[dict[str, Any]]:
    """What is remembered of bindings that are held back."""
    return [
        {"vhost": key.vhost, "source": key.name, "destination": key.destination, "destination_type": "exchange"}
        | dict(wanted[key])
        for key in held_back
    ]
