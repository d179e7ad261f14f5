"""`(source, target, chosen) → (actions, objections)`: what a copy has to do, and what to know before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from agent.core.migration.objects import (
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    in_order,
    policies_in_force,
    policy_key,
    vhost_key,
)
from agent.core.migration.releases import (
    MIRRORING,
    Objection,
    ObjectionKind,
    PolicyNames,
    adapted,
    as_quorum,
    of_policies,
    traps,
)
from agent.core.migration.selection import ChosenObjects


class MigrationVerb(StrEnum):
    """A copy never deletes."""

    CREATE = "create"
    CHANGE = "change"
    """Only policies: nothing else can be changed in place."""


@dataclass(frozen=True, slots=True)
class MigrationAction:
    """One request to the target."""

    verb: MigrationVerb
    key: ObjectKey
    body: Body = field(compare=False)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """`wanted` is what the target has to have; of it `found` objects are there, by kind. What can't be copied whatever
    the target is `unread`, with the reasons."""

    actions: tuple[MigrationAction, ...]
    objections: tuple[Objection, ...]
    found: Mapping[ObjectKind, int]
    wanted: Objects = field(repr=False)
    unread: Mapping[ObjectKey, str] = field(repr=False)

    @property
    def is_safe(self) -> bool:
        return not any(each.verdict in UNSAFE for each in self.objections)


UNSAFE: Final = frozenset({ObjectionKind.REFUSED, ObjectionKind.DIFFERS})
_MOST_NAMED: Final = 10
_FROM_OTHERS: Final = "look which of the two is meant: a copy changes no object but policies, and deletes none"
_REHEARSED: Final = "the target refused it in the rehearsal: a copy leaves it out"


def plan_migration(
    source: ClusterObjects,
    target: ClusterObjects,
    chosen: ChosenObjects,
    clock: Callable[[], float] = lambda: 0.0,
    *,
    with_traps: bool = True,
) -> MigrationPlan:
    """Keeps to what the target's release takes, as far as that is known. `clock` is for the time of policies' patterns,
    in seconds of CPU; with many policies, the traps take most of it."""
    of = [key for key, each in chosen.items() if with_traps or (each is not None and each.to_quorum)]
    before = policies_in_force(source.objects, [key for key in of if key in source.objects], clock)
    wanted, objections = _wanted(source, target, chosen, before)
    actions: list[MigrationAction] = []
    found: Counter[ObjectKind] = Counter()
    for key, body in wanted.items():
        there = target.objects.get(key)
        if there is None:
            actions.append(MigrationAction(MigrationVerb.CREATE, key, body))
        elif there == body or key.kind is ObjectKind.VHOST:
            found[key.kind] += 1
        elif key.kind is ObjectKind.POLICY:
            actions.append(MigrationAction(MigrationVerb.CHANGE, key, body))
        else:
            reason = f"the target has it with other properties: {_difference(there, body)}"
            objections.append(Objection(ObjectionKind.DIFFERS, key, reason, _FROM_OTHERS))
    unread = {key: f"it can't be copied: it {why}" for key, why in source.unread.items() if key in chosen}
    for key, why in unread.items():
        objections.append(Objection(ObjectionKind.REFUSED, key, why, "declare it again with other arguments"))
    if with_traps:
        after = policies_in_force({**target.objects, **wanted}, wanted, clock)
        objections += of_policies(chosen, wanted, before, after)
        objections += traps(source, target, chosen, wanted)
    return MigrationPlan(tuple(actions), tuple(dict.fromkeys(objections)), found, wanted, unread)


def rehearsed(plan: MigrationPlan, source: Objects, refused: Mapping[ObjectKey, str]) -> MigrationPlan:
    """The target's own word in place of what was predicted, of all that was put to it as it is at the source."""
    predicted = {each.key for each in plan.objections if each.verdict is ObjectionKind.REFUSED}
    tried = {key for key, body in plan.wanted.items() if body == source[key]}
    kept = [
        each
        for each in plan.objections
        if each.verdict is not ObjectionKind.REFUSED or each.key not in tried or each.key in refused
    ]
    more = [
        Objection(ObjectionKind.REFUSED, key, reason, _REHEARSED)
        for key, reason in refused.items()
        if key not in predicted or key not in tried
    ]
    return replace(plan, objections=(*kept, *more))


def _wanted(
    source: ClusterObjects, target: ClusterObjects, chosen: ChosenObjects, in_force: PolicyNames
) -> tuple[dict[ObjectKey, Body], list[Objection]]:
    wanted: dict[ObjectKey, Body] = {}
    objections: list[Objection] = []
    for key in in_order(chosen.keys() & source.objects.keys()):
        choice, body = chosen[key], source.objects[key]
        if choice is not None and choice.to_quorum and _is_mirrored(key, source.objects, in_force):
            body, more = as_quorum(key, body)
            objections += more
        if key.kind is not ObjectKind.BINDING or _is_topic(key.ends[0], source.objects):
            unchanged = body
            body, more = adapted(key, body, target.release, target.exchange_types)
            if target.objects.get(key) == unchanged:  # whatever was predicted, it takes it
                body, more = unchanged, [each for each in more if each.verdict is not ObjectionKind.REFUSED]
            objections += more
        if key.kind is not ObjectKind.POLICY or body["definition"]:
            wanted[key] = body
    return wanted, objections


def _is_mirrored(key: ObjectKey, objects: Objects, in_force: PolicyNames) -> bool:
    policy = objects.get(policy_key(key.vhost, in_force.get(key) or ""), {})
    return key.kind is ObjectKind.QUEUE and MIRRORING in policy.get("definition", ())


def _is_topic(exchange: ObjectKey, objects: Objects) -> bool:
    return exchange.name == "amq.topic" or objects.get(exchange, {}).get("type") == "topic"


def _difference(there: Body, wanted: Body) -> str:
    """The names of what differs; values may be long."""
    names: list[str] = []
    for name in wanted:
        if name == "arguments":
            both = {**there[name], **wanted[name]}
            names += [each for each in both if there[name].get(each) != wanted[name].get(each)]
        elif there.get(name) != wanted[name]:
            names.append(name)
    return ", ".join(sorted(names)[:_MOST_NAMED])


def needs(key: ObjectKey) -> tuple[ObjectKey, ...]:
    """The objects without which this one can't be made."""
    if key.kind is ObjectKind.VHOST:
        return ()
    return (vhost_key(key.vhost), *(key.ends if key.kind is ObjectKind.BINDING else ()))
