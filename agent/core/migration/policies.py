"""The policy in force of each queue and exchange, as brokers choose it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from agent.core.migration.objects import ObjectKey, ObjectKind, Objects, type_of
from agent.core.rules.patterns import TimeBudget, TimedPattern, VhostTimeBudget

_TYPED: Final = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


def policy_key(vhost: str, name: str) -> ObjectKey:
    return ObjectKey(ObjectKind.POLICY, vhost, name)


def policies_in_force(
    objects: Objects, of: Iterable[ObjectKey], clock: Callable[[], float]
) -> dict[ObjectKey, str | None]:
    """Their names, of the queues and exchanges that have one. None where that isn't known, since a pattern takes too
    long or can't be used. Of equal priorities it is the first by name; brokers promise none."""
    budget = TimeBudget(clock)
    budgets: dict[str, VhostTimeBudget] = {}
    ranked: dict[str, list[tuple[str, str, TimedPattern]]] = {}
    policies = [key for key in objects if key.kind is ObjectKind.POLICY]
    for key in sorted(policies, key=lambda key: (-objects[key]["priority"], key.name)):
        of_vhost = budgets.setdefault(key.vhost, budget.of_vhost())
        pattern = TimedPattern(objects[key]["pattern"], of_vhost)
        ranked.setdefault(key.vhost, []).append((key.name, objects[key]["apply-to"], pattern))
    found: dict[ObjectKey, str | None] = {}
    for key in of:
        if key.kind not in {ObjectKind.QUEUE, ObjectKind.EXCHANGE}:
            continue
        is_queue = key.kind is ObjectKind.QUEUE
        targets = ("all", "queues", _TYPED.get(type_of(objects[key]))) if is_queue else ("all", "exchanges")
        for name, apply_to, pattern in ranked.get(key.vhost, ()):
            matches = apply_to in targets and pattern.matches(key.name)
            if matches is not False:
                found[key] = name if matches else None
                break
    return found
