"""On which terms each copy of a standby may be trimmed, by the definitions of all queues together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    Release,
    exchange_key,
    queue_key,
    type_of,
)
from agent.core.standby.copies import DEAD_LETTERS, ENDS, QueueLimits, reached
from agent.core.standby.definitions import QueueDefinition, consumer_timeout, standing_doubt
from agent.core.standby.settings import StandbySettings

_KEY: Final = "dead-letter-routing-key"
_UNKNOWN: Final = "which policy is in force isn't known"
AUTO_DELETE: Final = "it is deleted automatically with its last consumer, even with one that only takes copies"


@dataclass(frozen=True, slots=True)
class TrimTerms:
    """The reasons why nothing is taken out of queues, and of the others the seconds after which the source takes back
    what isn't acknowledged; None if it may never."""

    never: Mapping[ObjectKey, str] = field(default_factory=dict)
    timeouts: Mapping[ObjectKey, float | None] = field(default_factory=dict)


def trim_terms(
    settings: StandbySettings,
    source: ClusterObjects,
    release: Release,
    wanted: Objects,
    of: QueueLimits,
    *,
    copies: QueueLimits | None = None,
) -> TrimTerms:
    """`release` is that of the standby, `of` the settings in force of all queues of the source, as any may dead-letter
    into one that is wanted, `copies` those of the copies."""
    copies = {key: each for key, each in of.items() if key in wanted} if copies is None else copies
    there, here = _by_default_exchange(of, source), reached(source.objects, _dead_letter_exchanges(copies))
    never: dict[ObjectKey, str] = {}
    timeouts: dict[ObjectKey, float | None] = {}
    for key, of_copy in copies.items():
        limits = of[key]
        if limits is None or of_copy is None or wanted[key]["auto_delete"]:
            never[key] = AUTO_DELETE if wanted[key]["auto_delete"] else _UNKNOWN
            continue
        kind = type_of(wanted[key])
        at_source = QueueDefinition(kind, limits, _short(source.release), dead_letters=key in there)
        copy = QueueDefinition(kind, of_copy, _short(release), dead_letters=key in here)
        if (doubt := standing_doubt(at_source, copy, sees_priorities=True)) is not None:
            never[key] = str(doubt)
        given = settings.consumer_timeout
        timeouts[key] = None if given is None else consumer_timeout(at_source, given)
    return TrimTerms(never, timeouts)


def _short(release: Release) -> tuple[int, int]:
    return release[0], release[1]


def _by_default_exchange(of: QueueLimits, source: ClusterObjects) -> set[ObjectKey]:
    """Queues that others dead-letter into by their names. That may be any of the vhost where no routing key is given,
    or where it isn't known whether a queue does so."""
    found: set[ObjectKey] = set()
    vhosts = {key.vhost for key in source.unread if key.kind is ObjectKind.QUEUE}
    for key, limits in of.items():
        if limits is None:
            vhosts.add(key.vhost)
        elif limits.get(DEAD_LETTERS) == "":
            named: Any = limits.get(_KEY)
            if isinstance(named, str):
                found.add(queue_key(key.vhost, named))
            else:
                vhosts.add(key.vhost)
    return found | {key for key in of if key.vhost in vhosts}


def _dead_letter_exchanges(of: QueueLimits) -> Iterable[ObjectKey]:
    """Those to which copies may be dead-lettered: nobody rejects them."""
    for key, limits in of.items():
        if limits is not None and any(name in limits for name in ENDS):
            name = limits.get(DEAD_LETTERS)
            if isinstance(name, str) and name:
                yield exchange_key(key.vhost, name)
            elif name == "":
                yield queue_key(key.vhost, str(limits.get(_KEY, key.name)))
