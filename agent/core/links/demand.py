"""The demand of a queue link: it takes messages while consumers of its own queue have nothing to do.

A consumer that has as many messages as its prefetch allows looks like any other from outside. So a few messages may
wait in the link's own queue: as many as its consumers took within a second lately, and ten at least. That also keeps a
consumer that takes one message at a time from making the link begin and end all the time.

Why: docs/decisions/0043-auto-delete-queues.md, docs/decisions/0044-messages-to-and-fro.md
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FEW: Final = 10  # messages that may wait, however slow the consumers are
AHEAD: Final = 1.0  # seconds that the consumers may have messages for before the link stops
NEARLY_DONE: Final = 0.2  # and those before it goes on, as that takes a moment
GRACE: Final = 0.25  # seconds without consumers before the link stops, as long as no messages wait
FIRST_REST: Final = 0.5
LONGEST_REST: Final = 8.0
ROUNDS: Final = 2  # visits of one message between two looks

LOOK_AGAIN: Final = 30.0  # where events report consumers
LOOK_ALONE: Final = 1.0
SOON: Final = 0.25
FAST: Final = 0.05
FAST_FLOW: Final = 500.0  # messages a second


class Idle(StrEnum):
    """The reason why a link takes no messages."""

    NO_CONSUMERS = "idle: no consumers downstream"
    NOT_EMPTY = "idle: messages wait for the consumers downstream"
    COMES_BACK = "idle: what was taken went back, as the consumers downstream are busy"


@dataclass(frozen=True, slots=True)
class Look:
    """One observation of a queue link: `ready` messages wait in its queue, `users` consume from the queue with a
    priority of 0 or more. The link has `forwarded` so many so far, `revisited` of them were here before, and of one
    message it has written the highest count of visits, `most_visits`."""

    ready: int
    users: int
    forwarded: int = 0
    most_visits: int = 0
    revisited: int = 0

    def comes_back_since(self, before: Look) -> bool:
        """True if one message came again and again, and at least half of what came was here before: a forged count
        alone is no sign."""
        came, again = self.forwarded - before.forwarded, self.revisited - before.revisited
        return bool(before.most_visits) and self.most_visits - before.most_visits >= ROUNDS and 2 * again >= came


class Demand:
    """The demand of one session: `takes` is True if messages are to be taken now, `idle` is the reason if not.

    `is_auto_delete`: the upstream's queue may be deleted with all its messages when its last consumer leaves. So once
    the link consumes, it goes on for as long as its own queue has consumers.
    """

    __slots__ = (
        "_gone_since", "_is_auto_delete", "_last", "_looked_at", "_moved", "_patience", "_rate", "_rest",
        "_rests_until", "idle", "takes",
    )  # fmt: skip

    def __init__(self, *, is_auto_delete: bool = False) -> None:
        self._is_auto_delete = is_auto_delete
        self.takes = False
        self.idle: Idle | None = Idle.NO_CONSUMERS
        self._last: Look | None = None
        self._looked_at = 0.0
        self._moved = 0.0  # messages a second that came
        self._rate = 0.0  # messages a second that the consumers took, while there were some to take
        self._gone_since: float | None = None
        self._rest = FIRST_REST
        self._rests_until = 0.0
        self._patience = SOON  # between looks while nothing changes

    def look(self, now: float, seen: Look) -> bool:
        """Apply an observation; returns `takes`."""
        before, self._last = self._last or seen, seen
        self._measure(now, before, seen)
        self._patience = min(2 * self._patience, LOOK_ALONE) if before is not seen and before == seen else SOON
        self._looked_at = now
        if not seen.users:
            self._without_users(now, seen)
        else:
            self._gone_since = None
            if seen.users > before.users:
                self._rest, self._rests_until = FIRST_REST, 0.0
            self._with_users(now, before, seen)
        return self.takes

    def due_in(self, *, is_heard: bool) -> float:
        """Seconds until the next look, unless an event comes before; `is_heard`: an event would report a change."""
        idle = LOOK_AGAIN if is_heard else LOOK_ALONE
        if self.takes:
            if self._gone_since is not None:
                return GRACE
            if self._moved >= FAST_FLOW:
                return FAST
            return SOON if self._is_moving else idle
        match self.idle:
            case Idle.NOT_EMPTY:
                return self._until_nearly_done
            case Idle.COMES_BACK:
                return max(FAST, min(idle, self._rests_until - self._looked_at))
            case _:
                return idle

    @property
    def _is_moving(self) -> bool:
        return self._moved > 0 or (self._last is not None and self._last.ready > 0)

    @property
    def _until_nearly_done(self) -> float:
        ready = 0 if self._last is None else self._last.ready
        left = ready - self._rate * NEARLY_DONE
        return min(max(left / self._rate, FAST), LOOK_ALONE) if self._rate > 0 else self._patience

    def _measure(self, now: float, before: Look, seen: Look) -> None:
        elapsed = now - self._looked_at
        if before is seen or elapsed <= 0:
            return
        came = seen.forwarded - before.forwarded
        self._moved = came / elapsed
        if came or before.ready:
            taken = max(0, came - (seen.ready - before.ready))
            self._rate = (self._rate + taken / elapsed) / 2 if self._rate else taken / elapsed

    def _without_users(self, now: float, seen: Look) -> None:
        if self._gone_since is None:
            self._gone_since = now
        if not self.takes or seen.ready or now - self._gone_since >= GRACE:
            self._stop(Idle.NO_CONSUMERS)

    def _with_users(self, now: float, before: Look, seen: Look) -> None:
        if not self.takes:
            if now < self._rests_until:
                self.idle = Idle.COMES_BACK
            elif seen.ready > self._rate * NEARLY_DONE:
                self.idle = Idle.NOT_EMPTY
            else:
                self.takes, self.idle = True, None
        elif seen.comes_back_since(before):
            self._stop(Idle.COMES_BACK)
            self._rests_until = now + self._rest
            self._rest = min(2 * self._rest, LONGEST_REST)
        elif seen.ready > max(FEW, self._rate * AHEAD) and not self._is_auto_delete:
            self._stop(Idle.NOT_EMPTY)

    def _stop(self, why: Idle) -> None:
        self.takes, self.idle = False, why
