"""The messages of a standby's queue that entered it before a time, by its own counts alone.

Messages stand in the order in which they entered, so those that entered before a time are the first ones. Their number
is the queue's depth without what entered since. Figures are late as those of a source are (`source_proof`), so each is
taken from a look that makes the number too small rather than too large. To use fewer looks makes it smaller.

Why: docs/decisions/0068-standby-trim.md
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from agent.core.standby.source_proof import MOST_LOOKS

NOWHERE: Final = -(2**63)
"""A position before all."""


@dataclass(frozen=True, slots=True)
class CopyFigures:
    """A queue of the standby: the messages in it with those that are unacknowledged, and those that ever `entered` it
    since its `identity` began, which changes as that of a source's queue does."""

    identity: str
    messages: int | None
    entered: int | None


@dataclass(frozen=True, slots=True)
class _CopyLook:
    at: float
    messages: int
    entered: int
    taken: int


_AT: Final = attrgetter("at")


class CopyPositions:
    """Looks at one queue. `span`: for how many seconds looks are remembered. A position is a number of messages that
    entered; the queue's head is at the position of the last one that left."""

    __slots__ = (
        "_identity",
        "_late",
        "_looks",
        "_now",
        "_since",
        "_spacing",
        "_span",
        "_surplus",
        "_taken",
        "is_counted",
    )

    def __init__(self, *, span: float, late: float) -> None:
        self._span = span + 8 * late
        self._late = late
        self._spacing = self._span / MOST_LOOKS
        self._identity = ""
        self._since = 0.0
        self._looks: list[_CopyLook] = []
        self._now: _CopyLook | None = None
        self._taken = 0
        self._surplus: int | None = None
        self.is_counted = True
        """False if more messages are there than were counted as they entered."""

    def look(self, now: float, seen: CopyFigures, taken: int) -> bool:
        """Returns False if positions of before mean nothing any more."""
        self._taken = taken
        if seen.messages is None or seen.entered is None:
            return True
        last, self._now = self._now, _CopyLook(now, seen.messages, seen.entered, taken)
        if last is None or seen.identity != self._identity or seen.entered < last.entered:
            self._identity, self._since, self._surplus, self.is_counted = seen.identity, now, None, True
            self._looks.clear()
            return False
        if now < self._since + self._late:
            return True  # its figures may still be of the queue before
        if not self._looks or now - self._looks[-1].at >= self._spacing:
            self._looks.append(self._now)
        while len(self._looks) > 1 and self._looks[1].at < now - self._span:
            self._looks.pop(0)
        self._compare()
        return True

    @property
    def known_at(self) -> float:
        """The depth that the head is found from is of this time or later."""
        depth = self._depth
        return 0.0 if depth is None else depth.at - self._late

    def entered_before(self, time: float) -> int:
        """At least so many had entered before this time."""
        look = self._last_by(time)
        return NOWHERE if look is None else look.entered

    def first_ones(self, position: int) -> int:
        """At least so many of those up to this position are there, at the head."""
        depth, now = self._depth, self._now
        if depth is None or now is None:
            return 0
        taken = self._taken - self._taken_before(depth)
        return max(0, position - (now.entered - depth.messages) - taken)

    @property
    def _depth(self) -> _CopyLook | None:
        """The latest look whose depth is surely of before the latest count of what entered."""
        return None if self._now is None else self._last_by(self._now.at - self._late)

    def _last_by(self, time: float) -> _CopyLook | None:
        place = bisect_right(self._looks, time, key=_AT)
        return self._looks[place - 1] if place else None

    def _taken_before(self, depth: _CopyLook) -> int:
        """All that the broker had surely removed at this depth's time; it applies acknowledgements within `late`."""
        earlier = self._last_by(depth.at - 2 * self._late)
        return 0 if earlier is None else earlier.taken

    def _compare(self) -> None:
        """Depth and what was taken, without what entered, can only fall: by what expires. Where it rises, there are
        messages that nobody counted."""
        depth, now = self._depth, self._now
        if depth is None or now is None:
            return
        least = depth.messages + self._taken_before(depth) - now.entered
        if self._surplus is not None and least > self._surplus:
            self.is_counted = False
        earlier = self._last_by(depth.at - self._late)
        if earlier is not None:
            most = depth.messages + depth.taken - earlier.entered
            self._surplus = most if self._surplus is None else min(self._surplus, most)
