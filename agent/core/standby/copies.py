"""What a standby needs beyond an ordinary copy: bindings that wait, and what is doubtful of its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent.core.migration.difference import MigrationPlan
from agent.core.migration.objects import (
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    binding_key,
    is_of_federation,
    type_of,
)
from agent.core.migration.policies import policies_in_force, policy_key
from agent.core.standby.settings import StandbySettings
from agent.core.text.quantities import listed

STREAM: Final = "stream"
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
    """What follows from the source's definitions."""

    held_back: tuple[ObjectKey, ...] = ()
    never_trimmed: Mapping[ObjectKey, str] = field(default_factory=dict)
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
    found = [StandbyDoubt(key, doubt) for key in queues for doubt in _doubts(limits[key], is_fed=key in fed)]
    never = {key: why for key in queues if (why := _why_not_trimmed(wanted[key], limits[key] or {}))}
    return StandbyCopies(held_back, never, tuple(found))


def without(plan: MigrationPlan, held_back: Iterable[ObjectKey]) -> MigrationPlan:
    left = frozenset(held_back)
    return replace(plan, actions=tuple(action for action in plan.actions if action.key not in left))


def inexact(source: ClusterObjects, wanted: Objects, clock: Callable[[], float] = lambda: 0.0) -> dict[ObjectKey, str]:
    """The queues of which a switchover can't take out exactly the copies of what was consumed, and why."""
    queues = [key for key in wanted if key.kind is ObjectKind.QUEUE]
    in_force = policies_in_force(source.objects, queues, clock)
    found = {key: _why_inexact(wanted[key], _limits(wanted[key], key, in_force, source.objects)) for key in queues}
    return {key: why for key, why in found.items() if why}


def _why_not_trimmed(body: Body, limits: Mapping[str, Any]) -> str:
    """Why nothing can be taken from its head, or not what is oldest."""
    if type_of(body) == STREAM:
        return "it is a stream"
    if body["auto_delete"]:
        return "it is deleted automatically with its last consumer"
    return "it has priorities" if "max-priority" in limits else ""


def _why_inexact(body: Body, limits: Mapping[str, Any] | None) -> str:
    if limits is None:
        return "which policy is in force isn't known"
    if why := _why_not_trimmed(body, limits):
        return why
    named = [name for name in (*_LIMITS, "expires") if name in limits]
    if "message-ttl" in limits and _DEAD_LETTERS in limits:
        named.append("message-ttl with a dead-letter exchange")
    return f"it has {listed(named, len(named))}" if named else ""


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


def _doubts(limits: Mapping[str, Any] | None, *, is_fed: bool) -> Iterator[str]:
    if not is_fed:
        yield "no chosen exchange is bound to it: what is published to it by its name can't be copied"
    if limits is None:
        yield "which policy is in force isn't known: a pattern takes too long, or can't be used"
        return
    has_end = [name for name in _EXPIRE if name in limits]
    if _DEAD_LETTERS in limits and has_end:
        yield f"copies that leave it by {', '.join(has_end)} are dead-lettered here, too: they come twice"
    if "expires" in limits:
        yield "it expires unless it is used, and nobody uses it here: it is deleted with its messages, and made again"
    if any(name in limits for name in _LIMITS):
        is_refusing = str(limits.get("overflow", "")).startswith("reject-publish")
        what = "its link waits once it is full" if is_refusing else "it drops its oldest, which may be unconsumed"
        yield f"it has a maximum length and holds what is consumed, too: {what}"
    if limits.get("queue-type") == STREAM:
        yield "consumers of a stream keep their offsets at the source: they mean nothing here"


def bindings_as_json(held_back: Iterable[ObjectKey], wanted: Objects) -> list[dict[str, Any]]:
    """What is remembered of bindings that are held back."""
    return [
        {"vhost": key.vhost, "source": key.name, "destination": key.destination, "destination_type": "exchange"}
        | dict(wanted[key])
        for key in held_back
    ]


def bindings_from_json(value: object) -> dict[ObjectKey, Body]:
    """What `bindings_as_json` wrote; anything else is left out."""
    entries = value.get("bindings") if isinstance(value, dict) else None
    found: dict[ObjectKey, Body] = {}
    for entry in entries if isinstance(entries, list) else ():
        texts = ("vhost", "source", "destination", "destination_type", "routing_key")
        if isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in texts):
            arguments = entry.get("arguments")
            table = arguments if isinstance(arguments, dict) else {}
            body = {"routing_key": entry["routing_key"], "arguments": table}
            found[binding_key(entry["vhost"], entry, table)] = body
    return found
