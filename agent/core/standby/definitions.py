"""The definitions of a source's queue and of its copy that never allow a trim, or one by age only, or make less of it a
proof.

Why: docs/decisions/0068-standby-trim.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.core.standby.source_proof import CONSUMER_TIMEOUT

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
