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
from agent.core.standby.definitions import OF_THE_SOURCE, QueueDefinition, consumer_timeout, standing_doubt
from agent.core.standby.settings import StandbySettings

_KEY: Final = "dead-letter-routing-key"
_UNKNOWN: Final = "which policy is in force isn't known"
_STREAM: Final = "stream"
AUTO_DELETE: Final = "it is deleted automatically with its last consumer, even with one that only takes copies"


@dataclass(frozen=True, slots=True)
class TrimTerms:
    """The reasons why nothing is taken out of queues, or only what is older than `keep`; and of those that aren't
    `never` trimmed the seconds after which the source takes back what isn't acknowledged, None if it may never."""

    never: Mapping[ObjectKey, str] = field(default_factory=dict)
    by_age_only: Mapping[ObjectKey, str] = field(default_factory=dict)
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
    there = _by_default_exchange(of)
    unread, unknown = _unread(source), _unknown(of, source) | _unknown(copies, source)
    here = reached(source.objects, _dead_letter_exchanges(copies))
    never: dict[ObjectKey, str] = {}
    by_age_only: dict[ObjectKey, str] = {}
    timeouts: dict[ObjectKey, float | None] = {}
    for key, of_copy in copies.items():
        limits = of[key]
        if limits is None or of_copy is None or wanted[key]["auto_delete"]:
            never[key] = AUTO_DELETE if wanted[key]["auto_delete"] else _UNKNOWN
            continue
        kind = type_of(wanted[key])
        at_source = QueueDefinition(kind, limits, _short(source.release), dead_letters=key in there)
        copy = QueueDefinition(kind, of_copy, _short(release), dead_letters=key in here)
        doubt = standing_doubt(at_source, copy, sees_priorities=True)
        if doubt is not None and doubt not in OF_THE_SOURCE:
            never[key] = str(doubt)
        elif key.vhost in unknown:  # whether its copy dead-letters into this one isn't known either
            never[key] = unknown[key.vhost]
        elif doubt is not None or key.vhost in unread:
            by_age_only[key] = unread[key.vhost] if doubt is None else str(doubt)
        given = settings.consumer_timeout
        timeouts[key] = None if given is None else consumer_timeout(at_source, given)
    return TrimTerms(never, by_age_only, timeouts)


def _short(release: Release) -> tuple[int, int]:
    return release[0], release[1]


def _by_default_exchange(of: QueueLimits) -> set[ObjectKey]:
    """Queues that others dead-letter into by their names; where no routing key is given, that may be any of the
    vhost."""
    found: set[ObjectKey] = set()
    for key, limits in of.items():
        if limits is not None and limits.get(DEAD_LETTERS) == "":
            named: Any = limits.get(_KEY)
            found |= (
                {queue_key(key.vhost, named)} if isinstance(named, str) else {q for q in of if q.vhost == key.vhost}
            )
    return found


def _unread(source: ClusterObjects) -> dict[str, str]:
    """By vhost, why it isn't known of each queue in it whether one that can't be read, and isn't copied, dead-letters
    into it."""
    return {key.vhost: _doubt(key, why) for key, why in source.unread.items() if key.kind is ObjectKind.QUEUE}


def _unknown(of: QueueLimits, source: ClusterObjects) -> dict[str, str]:
    """By vhost, the same of a queue whose policies aren't known."""
    return {
        key.vhost: _doubt(key, _UNKNOWN)
        for key, limits in of.items()
        if limits is None and type_of(source.objects[key]) != _STREAM
    }


def _doubt(key: ObjectKey, why: str) -> str:
    return f"whether {key} dead-letters into it isn't known: {why}"


def _dead_letter_exchanges(of: QueueLimits) -> Iterable[ObjectKey]:
    """Those to which copies may be dead-lettered: nobody rejects them."""
    for key, limits in of.items():
        if limits is not None and any(name in limits for name in ENDS):
            name = limits.get(DEAD_LETTERS)
            if isinstance(name, str) and name:
                yield exchange_key(key.vhost, name)
            elif name == "":
                yield queue_key(key.vhost, str(limits.get(_KEY, key.name)))
