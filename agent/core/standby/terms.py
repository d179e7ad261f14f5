"""On which terms each copy of a standby may be trimmed: what of the definitions of a source's queue and of its copy
never allows that, or by age only, or makes less of it a proof; by those of all queues together.

Why: docs/decisions/0068-standby-trim.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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
from agent.core.standby.settings import StandbySettings
from agent.core.standby.trim import CONSUMER_TIMEOUT

_WITHOUT_CLASSIC_TIMEOUT: Final = (4, 3)
_ALWAYS_WITH_PRIORITIES: Final = (4, 0)
FEWEST: Final = 3
"""Messages to take at least: if a queue holds some with a priority that counts, one is among the first three: 4.0 to
4.2 deliver two of them for each other one, 4.3 all of them before others."""


class StandingDoubt(StrEnum):
    """The reason why a queue is never trimmed as it is defined now, or by the age of copies only."""

    STREAM = "it is a stream, which consumers don't empty"
    PRIORITIES = "the standby's queue has priorities, so the first messages in it aren't the oldest"
    QUORUM_PRIORITIES = (
        "quorum queues order messages by priority since RabbitMQ 4.0, however they are declared, so the first messages "
        "at the standby may not be the oldest"
    )
    LIMITED = "the standby's queue has a length limit, at which it drops messages by itself, or refuses them"
    CONSUMED = "somebody consumes from the standby's queue: stop it, as what it takes is missing after a promotion"
    RETURNED = (
        "returned messages wait at the source without being counted as there (delayed-retry-…), so a queue that looks "
        "empty may not be"
    )
    DEAD_LETTERED = (
        "a queue of the source dead-letters into it by the default exchange, so a message that was consumed may come "
        "back without a copy"
    )
    DEAD_LETTERED_HERE = (
        "a queue of the standby dead-letters into it, so its messages may be here before they are in the source's queue"
    )


OF_THE_SOURCE: Final = frozenset({StandingDoubt.RETURNED, StandingDoubt.DEAD_LETTERED})
"""What the source still holds isn't known of these, but how old the copies are: `keep` holds."""


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue of one side: `kind` is its type; `settings` its arguments without `x-`, and the policies in force, of
    which the stricter value counts; `release` that of its broker. `dead_letters`: other queues dead-letter into it,
    at the source by the default exchange, at the standby in any way."""

    kind: str
    settings: Mapping[str, object]
    release: tuple[int, int]
    consumers: int = 0
    dead_letters: bool = False


def standing_doubt(
    source: QueueDefinition, copy: QueueDefinition, *, sees_priorities: bool = False
) -> StandingDoubt | None:
    """`sees_priorities`: who takes messages takes FEWEST at least, looks at each one's priority, and once one has
    another than 0 returns them and takes none from this queue any more."""
    if "stream" in {source.kind, copy.kind}:
        return StandingDoubt.STREAM
    if "max-priority" in copy.settings:
        return StandingDoubt.PRIORITIES
    if copy.kind == "quorum" and copy.release >= _ALWAYS_WITH_PRIORITIES and not sees_priorities:
        return StandingDoubt.QUORUM_PRIORITIES
    if copy.settings.keys() & {"max-length", "max-length-bytes"}:
        return StandingDoubt.LIMITED
    if copy.consumers:
        return StandingDoubt.CONSUMED
    if copy.dead_letters:
        return StandingDoubt.DEAD_LETTERED_HERE
    if any(name.startswith("delayed-retry") for name in source.settings):
        return StandingDoubt.RETURNED
    return StandingDoubt.DEAD_LETTERED if source.dead_letters else None


def consumer_timeout(source: QueueDefinition, after: float) -> float | None:
    """Seconds after which the source returns what isn't acknowledged, None if it never does. Brokers don't show what
    they are configured to: it is the default, or `after` if that is longer."""
    if source.kind == "classic" and source.release >= _WITHOUT_CLASSIC_TIMEOUT:
        return None
    own = source.settings.get("consumer-timeout")
    if own is None:
        return max(after, CONSUMER_TIMEOUT)
    return own / 1000 if isinstance(own, int) and own > 0 else None


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
