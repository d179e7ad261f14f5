"""`(source, target, chosen) → (actions, objections)`: what a copy has to do, and what to know before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.core.migration.objects import Body, ClusterObjects, ObjectKey, ObjectKind, in_order, vhost_key
from agent.core.migration.releases import Objection, ObjectionKind, adapted, as_quorum
from agent.core.migration.selection import ChosenObjects
from agent.core.migration.traps import traps


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
    """`wanted` is what the target has to have; of it `found` objects are there, by kind."""

    actions: tuple[MigrationAction, ...]
    objections: tuple[Objection, ...]
    found: Mapping[ObjectKind, int]
    wanted: Mapping[ObjectKey, Body] = field(repr=False)

    @property
    def is_safe(self) -> bool:
        return not any(each.verdict in UNSAFE for each in self.objections)


UNSAFE: Final = frozenset({ObjectionKind.REFUSED, ObjectionKind.DIFFERS})
_MOST_NAMED: Final = 10
_FROM_OTHERS: Final = "look which of the two is meant: a copy changes no object but policies, and deletes none"


def plan_migration(source: ClusterObjects, target: ClusterObjects, chosen: ChosenObjects) -> MigrationPlan:
    """Keeps to what the target's release takes, as far as that is known."""
    wanted, objections = _wanted(source, target, chosen)
    actions: list[MigrationAction] = []
    found: Counter[ObjectKind] = Counter()
    for key in in_order(wanted):
        there = target.objects.get(key)
        if there is None:
            actions.append(MigrationAction(MigrationVerb.CREATE, key, wanted[key]))
        elif there == wanted[key] or key.kind is ObjectKind.VHOST:
            found[key.kind] += 1
        elif key.kind is ObjectKind.POLICY:
            actions.append(MigrationAction(MigrationVerb.CHANGE, key, wanted[key]))
        else:
            reason = f"the target has it with other properties: {_difference(there, wanted[key])}"
            objections.append(Objection(ObjectionKind.DIFFERS, key, reason, _FROM_OTHERS))
    vhosts = {key.vhost for key in chosen.keys}
    objections += [
        Objection(ObjectionKind.REFUSED, key, f"it can't be copied: it {why}", "declare it again with other arguments")
        for key, why in source.unread
        if key.vhost in vhosts
    ]
    objections += traps(source, target, chosen, wanted)
    return MigrationPlan(tuple(actions), tuple(dict.fromkeys(objections)), found, wanted)


def _wanted(
    source: ClusterObjects, target: ClusterObjects, chosen: ChosenObjects
) -> tuple[dict[ObjectKey, Body], list[Objection]]:
    wanted: dict[ObjectKey, Body] = {}
    objections: list[Objection] = []
    for key in in_order(chosen.keys):
        body = source.objects[key]
        if key.kind is ObjectKind.QUEUE and chosen.queues[key].to_quorum and source.is_mirrored(key):
            body, more = as_quorum(key, body)
            objections += more
        if key.kind is not ObjectKind.BINDING or _is_topic(source, key):
            body, more = adapted(key, body, target.release, target.exchange_types)
            objections += more
        if key.kind is not ObjectKind.POLICY or body["definition"]:
            wanted[key] = body
    return wanted, objections


def _is_topic(source: ClusterObjects, binding: ObjectKey) -> bool:
    return source.objects.get(binding.ends[0], {}).get("type") == "topic"


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
