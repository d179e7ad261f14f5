"""A probe on its way through a link: for how long, and whether it can still arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OVERDUE: Final = 3  # intervals
_LOOKS: Final = 2


@dataclass(frozen=True, slots=True)
class Passage:
    """The messages that the link's queue and the link hold at one moment."""

    ready: int  # messages in the queue
    underway: int  # that were delivered and are neither settled nor held for later
    taken: int  # that were read from the queue since the agent began
    prefetch: int


@dataclass(slots=True)
class OnItsWay:
    """A probe on its way. Queues keep their order, so it is known when it must have come through. One that hasn't
    by then was purged, refused or dropped by a limit of the queue, or lost with a connection, and another one may
    be sent."""

    token: bytes
    sent: float
    _looks_at_nothing: int = 0
    _passed: int | None = field(default=None)  # once so many are taken, all are that stood before it

    def look(self, seen: Passage) -> bool:
        """True if the probe is lost. Messages that the broker has sent and that aren't read here are at most the
        prefetch."""
        if self._passed is not None and seen.taken >= self._passed:
            return True
        self._looks_at_nothing = 0 if seen.ready or seen.underway else self._looks_at_nothing + 1
        passed = seen.taken + seen.ready + seen.prefetch
        self._passed = passed if self._passed is None else min(self._passed, passed)
        return self._looks_at_nothing >= _LOOKS
