"""What a standby needs beyond an ordinary copy: bindings that wait, and what is doubtful of its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

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
from agent.core.model import Choice
from agent.core.standby.settings import StandbySettings
from agent.core.text.quantities import listed

STREAM: Final = "stream"
DEAD_LETTERS: Final = "dead-letter-exchange"
_LIMITS: Final = ("max-length", "max-length-bytes")
ENDS: Final = ("message-ttl", "expires", *_LIMITS)
"""What lets messages leave a queue that nobody consumes from."""
QueueLimits: TypeAlias = Mapping[ObjectKey, "Mapping[str, Any] | None"]
"""The settings in force of queues, by their names in policies; None if a queue's policy isn't known."""


@dataclass(frozen=True, slots=True)
class StandbyDoubt:
    """What may make a queue's copy another one than its original, or a promotion repeat or lack something."""

    queue: ObjectKey
    doubt: str


@dataclass(frozen=True, slots=True)
class StandbyCopies:
    """What follows from the source's definitions."""

    held_back: tuple[ObjectKey, ...] = ()
    doubts: tuple[StandbyDoubt, ...] = ()


def limits_of(source: ClusterObjects, wanted: Objects, clock: Callable[[], float] = lambda: 0.0) -> QueueLimits:
    """Of the queues that the standby is to have, as they are at the source."""
    queues = sorted((key for key in wanted if key.kind is ObjectKind.QUEUE), key=str)
    in_force = policies_in_force(source.objects, queues, clock)
    return {key: _limits(source.objects[key], key, in_force, source.objects) for key in queues}


def without_federation(source: ClusterObjects) -> ClusterObjects:
    """The source without what federates there: a standby alone federates its vhosts. A policy of nothing else isn't
    copied."""
    keys = frozenset(Choice)
    bare = {
        key: {**body, "definition": {name: value for name, value in body["definition"].items() if name not in keys}}
        for key, body in source.objects.items()
        if key.kind is ObjectKind.POLICY and not keys.isdisjoint(body["definition"])
    }
    return replace(source, objects={**source.objects, **bare}) if bare else source


def copies_of(settings: StandbySettings, source: ClusterObjects, wanted: Objects, limits: QueueLimits) -> StandbyCopies:
    """`wanted` is what the standby is to have of the source."""
    held_back = tuple(key for key in wanted if _is_held_back(key, settings, source.objects))
    exchanges = {key.ends[0] for key in source.objects if key.kind is ObjectKind.BINDING}
    linked = (each for each in exchanges if each.vhost in settings.vhosts and _has_link(each, settings, source.objects))
    fed = reached(source.objects, linked)
    found = [StandbyDoubt(key, doubt) for key, of in limits.items() for doubt in _doubts(of, is_fed=key in fed)]
    return StandbyCopies(held_back, tuple(found))


def without(plan: MigrationPlan, held_back: Iterable[ObjectKey]) -> MigrationPlan:
    left = frozenset(held_back)
    return replace(plan, actions=tuple(action for action in plan.actions if action.key not in left))


def inexact(wanted: Objects, limits: QueueLimits) -> dict[ObjectKey, str]:
    """The queues of which a switchover can't take out exactly the copies of what was consumed, and why."""
    found = {key: _why_inexact(wanted[key], of) for key, of in limits.items()}
    return {key: why for key, why in found.items() if why}


def _why_inexact(body: Body, limits: Mapping[str, Any] | None) -> str:
    if limits is None:
        return "which policy is in force isn't known"
    if type_of(body) == STREAM:
        return "it is a stream"
    if body["auto_delete"]:
        return "it is deleted automatically with its last consumer"
    named = [name for name in (*_LIMITS, "expires", "max-priority") if name in limits]
    if "message-ttl" in limits and DEAD_LETTERS in limits:
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


def reached(objects: Objects, starts: Iterable[ObjectKey]) -> set[ObjectKey]:
    """These exchanges and queues, and what bindings lead to from them."""
    by_source: dict[ObjectKey, list[ObjectKey]] = {}
    for key in objects:
        if key.kind is ObjectKind.BINDING:
            by_source.setdefault(key.ends[0], []).append(key.ends[1])
    found = set(starts)
    waiting = list(found)
    while waiting:
        more = set(by_source.get(waiting.pop(), ())) - found
        found |= more
        waiting += more
    return found


def _doubts(limits: Mapping[str, Any] | None, *, is_fed: bool) -> Iterator[str]:
    if not is_fed:
        yield "no chosen exchange is bound to it: what is published to it by its name can't be copied"
    if limits is None:
        yield "which policy is in force isn't known: a pattern takes too long, or can't be used"
        return
    has_end = [name for name in ENDS if name in limits]
    if DEAD_LETTERS in limits and has_end:
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
