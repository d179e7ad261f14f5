"""The needs of a standby beyond an ordinary copy: bindings that wait, and doubts about its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
    exchange_key,
    in_order,
    is_brokers_own,
    is_of_federation,
    policies_in_force,
    policy_key,
    queue_key,
    type_of,
)
from agent.core.model import Choice
from agent.core.rules.declarations import TYPE
from agent.core.rules.policies import COMPETING_TYPES
from agent.core.standby.settings import StandbySettings
from agent.core.text import listed

STREAM: Final = "stream"
DELAYED_RETRY: Final = "delayed-retry"
"""Begins the settings by which messages wait before they are delivered again: they aren't ready meanwhile."""
DEAD_LETTERS: Final = "dead-letter-exchange"
_FOLLOWED: Final = frozenset({ObjectKind.EXCHANGE, ObjectKind.QUEUE})
_LIMITS: Final = ("max-length", "max-length-bytes")
ENDS: Final = ("message-ttl", "expires", *_LIMITS)
"""The settings that let messages leave a queue that nobody consumes from."""
TWICE: Final = "one message reaches it through several exchanges with links: its copies come more than once"
Limits: TypeAlias = Mapping[str, Any] | None
QueueLimits: TypeAlias = Mapping[ObjectKey, "Limits"]
"""The settings in force of queues, by their names in policies; None if a queue's policy isn't known."""


@dataclass(frozen=True, slots=True)
class StandbyDoubt:
    """A reason why a queue's copy may differ from its original, or a promotion repeat or lack something."""

    queue: ObjectKey
    doubt: str


@dataclass(frozen=True, slots=True)
class StandbyCopies:
    """The bindings that wait and the doubts, by the source's definitions and the standby's own policies."""

    held_back: tuple[ObjectKey, ...] = ()
    doubts: tuple[StandbyDoubt, ...] = ()


@dataclass(frozen=True, slots=True)
class StandbyGone:
    """Exchanges and queues that are here and not at the source; and the vhosts of which it has none any more."""

    objects: Sequence[ObjectKey] = ()
    vhosts: tuple[str, ...] = ()


def limits_of(
    source: ClusterObjects, wanted: Objects, clock: Callable[[], float] = lambda: 0.0, operator: Objects | None = None
) -> QueueLimits:
    """Of those of the wanted queues that the source has, as they are there, with the policies of its operator."""
    objects = source.objects
    queues = sorted((key for key in wanted if key.kind is ObjectKind.QUEUE and key in objects), key=str)
    in_force = policies_in_force(objects, queues, clock)
    found = {key: _limits(objects[key], key, in_force, objects) for key in queues}
    if operator:
        bare = {key: {**objects[key], "arguments": {TYPE: objects[key]["arguments"][TYPE]}} for key in queues}
        by_operator = policies_in_force({**operator, **bare}, queues, clock)
        added = {key: _limits({"arguments": {}}, key, by_operator, operator) for key in queues}
        found = {key: _stricter(each, added[key]) for key, each in found.items()}
    return found


def limits_here(limits: QueueLimits, target: QueueLimits) -> QueueLimits:
    """Of the copies: what both sides say, as what is copied comes there, too."""
    return {key: _stricter(each, target.get(key, each)) for key, each in limits.items()}


def _stricter(one: Limits, other: Limits) -> Limits:
    """Of two numbers brokers take the lower one."""
    if one is None or other is None:
        return None
    both = {
        name: min(one[name], other[name])
        for name in one.keys() & other.keys()
        if isinstance(one[name], int) and isinstance(other[name], int)
    }
    return {**one, **other, **both}


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


def copies_of(
    settings: StandbySettings,
    source: ClusterObjects,
    wanted: Objects,
    limits: QueueLimits,
    here: QueueLimits | None = None,
) -> StandbyCopies:
    """`wanted` is what the standby is to have of the source; `limits` hold there, and `here` for the copies."""
    held_back = tuple(key for key in wanted if _is_held_back(key, settings, source.objects))
    sources = {key.ends[0] for key in source.objects if key.kind is ObjectKind.BINDING and key.vhost in settings.vhosts}
    linked = {each for each in sources if _has_link(each, settings, source.objects)}
    fed = reached(source.objects, linked)
    paths = _Paths(source.objects, linked, held_back)
    lacking, twice = paths.lacking(sources - linked), paths.twice()
    found = [
        StandbyDoubt(key, doubt)
        for key, of in limits.items()
        for doubt in (
            *_doubts(of, is_fed=key in fed),
            *_doubts_here(of, of if here is None else here.get(key)),
            *((lacking[key],) if key in lacking and key in fed else ()),
            *((TWICE,) if key in twice else ()),
        )
    ]
    return StandbyCopies(held_back, tuple(found))


class _Paths:
    """The ways by which messages reach queues of the standby: through links, and bindings that aren't held back."""

    def __init__(self, objects: Objects, linked: AbstractSet[ObjectKey], held_back: Iterable[ObjectKey]) -> None:
        left = frozenset(held_back)
        self._objects, self._linked = objects, linked
        self._here = next_of(key for key in objects if key not in left)
        self._there = next_of(objects)
        self._starts = {key.ends[0] for key in left}

    def lacking(self, others: Iterable[ObjectKey]) -> dict[ObjectKey, str]:
        """The queues that get messages at the source from exchanges without a link, to which clients may publish."""
        found: dict[ObjectKey, str] = {}
        for each in sorted(others, key=str):
            if not self._objects.get(each, {}).get("internal"):
                kind = str(self._objects.get(each, {}).get("type", ""))
                why = f"is of type {kind}, which no link shares" if kind in COMPETING_TYPES else "has no link"
                text = f"what reaches it by exchange {each.name!r} is missing: that one {why}"
                found.update({key: text for key in reached_by(self._here, [each]) if key not in found})
        return found

    def twice(self) -> set[ObjectKey]:
        """The queues that one message reaches through several links, and at the source only once."""
        near: dict[ObjectKey, set[ObjectKey]] = {}
        found: set[ObjectKey] = set()
        for start in self._starts:
            seen: set[ObjectKey] = set()
            for each in reached_by(self._there, [start]) & self._linked:
                if each not in near:
                    near[each] = reached_by(self._here, [each])
                found |= seen & near[each]
                seen |= near[each]
        return {key for key in found if key.kind is ObjectKind.QUEUE}


def gone(settings: StandbySettings, source: ClusterObjects, target: ClusterObjects) -> StandbyGone:
    """The exchanges and queues that the standby has, of the names that it follows, and the source hasn't."""
    there = source.objects.keys() | source.unread.keys() | source.passing
    here: dict[str, list[ObjectKey]] = {}
    for key in target.objects:
        is_left = is_brokers_own(key) or is_of_federation(key, target.objects)
        if key.kind in _FOLLOWED and not is_left and settings.follows(key):
            here.setdefault(key.vhost, []).append(key)
    missing = {vhost: tuple(key for key in keys if key not in there) for vhost, keys in here.items()}
    emptied = tuple(vhost for vhost, keys in here.items() if len(missing[vhost]) == len(keys))
    return StandbyGone(in_order(key for keys in missing.values() for key in keys), emptied)


def without(plan: MigrationPlan, held_back: Iterable[ObjectKey]) -> MigrationPlan:
    left = frozenset(held_back)
    return replace(plan, actions=tuple(action for action in plan.actions if action.key not in left))


def inexact(wanted: Objects, limits: QueueLimits) -> dict[ObjectKey, str]:
    """The queues of which a switchover can't take out exactly the copies of what was consumed, and why."""
    fed = reached(wanted, _dead_letter_targets(limits))
    found = {key: _why_inexact(wanted[key], of, is_fed=key in fed) for key, of in limits.items()}
    return {key: why for key, why in found.items() if why}


def unmovable(wanted: Objects, there: QueueLimits, here: QueueLimits) -> dict[ObjectKey, str]:
    """The queues whose messages a switchover leaves at the source, as a move could lose some, and why."""
    found = {key: _why_unmovable(wanted[key], of, here[key]) for key, of in there.items()}
    return {key: why for key, why in found.items() if why}


def _why_unmovable(body: Body, there: Limits, here: Limits) -> str:
    if there is None or here is None:
        return "which policy is in force isn't known"
    if type_of(body) == STREAM:
        return "it is a stream"
    if body["auto_delete"]:
        return "it is deleted automatically with its last consumer, even with one that only moves messages"
    named = [name for name in _LIMITS if name in here]
    if named and str(here.get("overflow", "")).startswith("reject-publish"):
        return f"it has {listed(named, len(named))} and refuses what is too much, and it holds copies, too"
    stricter = [name for name in named if here[name] != there.get(name)]
    return f"the standby's own policies have a lower {listed(stricter, len(stricter))}" if stricter else ""


def _dead_letter_targets(limits: QueueLimits) -> Iterator[ObjectKey]:
    """The exchanges and queues that queues dead-letter to, with a time limit or not: messages may have one of their
    own. Through the default exchange without a routing key that may be any queue of the vhost."""
    for key, of in limits.items():
        name = None if of is None else of.get(DEAD_LETTERS)
        if of is not None and name == "":
            named = of.get("dead-letter-routing-key")
            yield from (
                [queue_key(key.vhost, named)]
                if isinstance(named, str)
                else (each for each in limits if each.vhost == key.vhost)
            )
        elif isinstance(name, str):
            yield exchange_key(key.vhost, name)


def _why_inexact(body: Body, limits: Limits, *, is_fed: bool) -> str:
    if limits is None:
        return "which policy is in force isn't known"
    if type_of(body) == STREAM:
        return "it is a stream"
    if body["auto_delete"]:
        return "it is deleted automatically with its last consumer"
    if is_fed:
        return "queues dead-letter into it, so messages may come to it meanwhile"
    named = [name for name in (*_LIMITS, "expires", "max-priority") if name in limits]
    named += sorted(name for name in limits if name.startswith(DELAYED_RETRY))
    if "message-ttl" in limits and DEAD_LETTERS in limits:
        named.append("message-ttl with a dead-letter exchange")
    return f"it has {listed(named, len(named))}" if named else ""


def _is_held_back(key: ObjectKey, settings: StandbySettings, objects: Objects) -> bool:
    """True for a binding to an exchange with a link of its own: bound here, its messages would come twice."""
    return key.kind is ObjectKind.BINDING and key.to_exchange and _has_link(key.ends[1], settings, objects)


def _has_link(exchange: ObjectKey, settings: StandbySettings, objects: Objects) -> bool:
    if is_of_federation(exchange, objects) or objects.get(exchange, {}).get("type") in COMPETING_TYPES:
        return False
    return settings.federates(exchange, is_internal=objects.get(exchange, {}).get("internal") is True)


def _limits(body: Body, key: ObjectKey, in_force: Mapping[ObjectKey, str | None], objects: Objects) -> Limits:
    """The settings of a queue that arguments and policies share, by their names in policies; None if its policy isn't
    known."""
    policy = in_force.get(key, "")
    if policy is None:
        return None
    of_policy = objects[policy_key(key.vhost, policy)]["definition"] if policy else {}
    return _stricter(of_policy, {name.removeprefix("x-"): value for name, value in body["arguments"].items()})


def reached(objects: Objects, starts: Iterable[ObjectKey]) -> set[ObjectKey]:
    """These exchanges and queues, and what bindings lead to from them."""
    return reached_by(next_of(objects), starts)


def next_of(keys: Iterable[ObjectKey]) -> Mapping[ObjectKey, Sequence[ObjectKey]]:
    """The exchanges and queues that bindings lead to, by their sources."""
    found: dict[ObjectKey, list[ObjectKey]] = {}
    for key in keys:
        if key.kind is ObjectKind.BINDING:
            found.setdefault(key.ends[0], []).append(key.ends[1])
    return found


def reached_by(by_source: Mapping[ObjectKey, Sequence[ObjectKey]], starts: Iterable[ObjectKey]) -> set[ObjectKey]:
    found = set(starts)
    waiting = list(found)
    while waiting:
        more = set(by_source.get(waiting.pop(), ())) - found
        found |= more
        waiting += more
    return found


def _doubts(limits: Limits, *, is_fed: bool) -> Iterator[str]:
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


def _doubts_here(there: Limits, here: Limits) -> Iterator[str]:
    """The doubts that the standby's own policies and operator policies add."""
    if there is not None and here is None:
        yield "which policy is in force at the standby isn't known: a pattern takes too long, or can't be used"
    elif there is not None and here is not None:
        own = [name for name in ENDS if name in here and here[name] != there.get(name)]
        if own:
            yield f"the standby's own policies have {listed(own, len(own))}: copies leave it that the source still has"


def still_held_back(before: Objects, now: Iterable[ObjectKey], wanted: Objects, here: Objects) -> Objects:
    """With those of `before` that could still be made: like all else, what disappears at the source stays."""
    stays = {key: body for key, body in before.items() if key not in here and all(end in here for end in key.ends)}
    found = stays | {key: wanted[key] for key in now}
    return {key: found[key] for key in sorted(found, key=str)}


def bindings_as_json(held_back: Iterable[ObjectKey], wanted: Objects) -> list[dict[str, Any]]:
    """The bindings that are held back, as they are remembered."""
    return [
        {"vhost": key.vhost, "source": key.name, "destination": key.destination, "destination_type": "exchange"}
        | dict(wanted[key])
        for key in held_back
    ]


def bindings_from_json(value: object) -> dict[ObjectKey, Body]:
    """The bindings that `bindings_as_json` wrote; anything else is left out."""
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
