"""The account of a link's queue upstream: what entered and what left it, from samples of the counters of the upstream's
HTTP API.

A broker collects these numbers every few seconds, each at another time, so they only add up where nothing moved for
longer than that. Two such samples are compared; what moves in between belongs to the later one.

Why: docs/decisions/0054-account-at-rest.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

QUIET_FOR: Final = 15.0
"""Seconds. By default a queue reports every 5 s, and the HTTP API reads what it reported every 5 s."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The counters of a queue in the HTTP API: the messages that were routed to it, and those that left it because a
    consumer acknowledged them, or needs no acknowledgement, since the broker began to count; and those in it now, with
    those that wait for an acknowledgement."""

    entered: int
    acknowledged: int
    messages: int

    def continues(self, earlier: QueueCounts) -> bool:
        """True if neither counter has fallen: otherwise the broker has begun to count anew in between."""
        return self.entered >= earlier.entered and self.acknowledged >= earlier.acknowledged


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """The counts of the link itself: messages that are settled at its source, and redelivered ones."""

    settled: int
    redelivered: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Sums of the changes between samples that could be compared, of the queue and of the link alike; `looks` is the
    number of comparisons, `growth` that of the queue, and `waiting` what was in it at the last one."""

    looks: int = 0
    entered: int = 0
    acknowledged: int = 0
    growth: int = 0
    settled: int = 0
    settled_again: int = 0  # at most: so many messages came again
    waiting: int | None = None


NOTHING: Final = Compared()


@dataclass(frozen=True, slots=True)
class _Sample:
    queue: QueueCounts
    link: LinkCounts
    since: float
    """The time since when nothing has moved."""


@dataclass(frozen=True, slots=True)
class UpstreamAccount:
    """The account of one link, as long as the link exists: the counters in it never fall. Times are in seconds."""

    compared: Compared = NOTHING
    _last: _Sample | None = None
    _quiet: _Sample | None = None

    def look(self, queue: QueueCounts, link: LinkCounts, now: float) -> UpstreamAccount:
        last = self._last
        if last is None or not queue.continues(last.queue):
            return UpstreamAccount(self.compared, _Sample(queue, link, now))
        if (queue, link.settled) != (last.queue, last.link.settled):
            return replace(self, _last=_Sample(queue, link, now))
        current = _Sample(queue, link, last.since)
        if now - last.since < QUIET_FOR:
            return replace(self, _last=current)
        return UpstreamAccount(_added(self.compared, self._quiet or current, current), current, current)

    def interrupted(self) -> UpstreamAccount:
        """The account after an interruption: nothing is known of what comes next, such as another queue, or one that
        somebody else serves for a while."""
        return UpstreamAccount(self.compared)


def _added(sums: Compared, before: _Sample, now: _Sample) -> Compared:
    return Compared(
        looks=sums.looks + 1,
        entered=sums.entered + now.queue.entered - before.queue.entered,
        acknowledged=sums.acknowledged + now.queue.acknowledged - before.queue.acknowledged,
        growth=sums.growth + now.queue.messages - before.queue.messages,
        settled=sums.settled + now.link.settled - before.link.settled,
        settled_again=sums.settled_again + now.link.redelivered - before.link.redelivered,
        waiting=now.queue.messages,
    )
