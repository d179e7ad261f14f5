"""Refused messages of which no copy is kept: each stays unacknowledged, and a few at a time are returned to the source.

What goes back to a source comes again before all that follows. So were all of them returned at once, they would take
every place of the prefetch each time, and nothing behind them would ever be tried. A few are tried after each pause,
which grows while none of them gets anywhere; while most of them do, they are more each time.

Why: docs/decisions/0013-refused-stay-at-source.md
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

SHORTEST: Final = 0.1
LONGEST: Final = 15.0
SPARINGLY: Final = 600.0  # where each return is counted, and the broker drops what came back too often
FEW: Final = 16
FEW_BYTES: Final = 4 * 1024 * 1024
MOST_BYTES: Final = 32 * 1024 * 1024
_LARGEST_SCALE: Final = 64
COMES_BACK_WITHIN: Final = 5.0  # what was returned is counted as waiting for so long
FORGOTTEN_AFTER: Final = 60.0  # after its return: somebody else has it by then, or it is no more


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of one message: its address and approximate size, when it was refused first, and when it was tried
    last."""

    address: bytes
    size: int
    since: float
    tried: float


class UnacknowledgedRefusals:
    """The unacknowledged refusals of one link. Messages are named by their delivery tags; one that comes again has
    another tag."""

    def __init__(self) -> None:
        self.returns_are_counted = False  # whether each return is counted
        self._waiting: dict[int, Refusal] = {}  # those that wait longest come first
        self._on_the_way: dict[bytes, deque[tuple[float, Refusal]]] = {}
        """Returned messages that haven't come again, by address, each with the time of its return."""
        self._forgot_at = float("-inf")
        self._returned_at = float("-inf")
        self._delay = SHORTEST
        self._next_at = 0.0
        self._scale = 1
        self._returned = 0  # at the last time
        self._fared_well = 0  # since then: got through, or a copy is kept now
        self._fared_badly = 0

    @property
    def waiting(self) -> int:
        """The number of unacknowledged messages."""
        return len(self._waiting)

    @property
    def oldest(self) -> tuple[float, bytes] | None:
        """The time at which the message that has waited longest was first refused, and its address; None if there is
        none."""
        return min(((refusal.since, refusal.address) for refusal in self._waiting.values()), default=None)

    @property
    def expects(self) -> bool:
        """True if any returned message may come again."""
        return bool(self._on_the_way)

    @property
    def wakes_at(self) -> float | None:
        """The time at which to return the next messages; None if there are none."""
        return self._next_at if self._waiting else None

    def count(self, now: float) -> int:
        """The number of refused messages, with those that were returned and are still on their way."""
        is_late = now - self._returned_at > COMES_BACK_WITHIN
        return len(self._waiting) + (0 if is_late else sum(map(len, self._on_the_way.values())))

    def park(self, tag: int, refusal: Refusal, now: float) -> None:
        if not self._waiting and not self._on_the_way:
            self._scale, self._returned = 1, 0
            self._delay = self._longest if self.returns_are_counted else SHORTEST
            self._next_at = now + self._delay
        self._waiting[tag] = refusal

    def due(self, now: float, room: int) -> list[int]:
        """The tags of the messages to return now. If they are refused again, copies of up to `room` bytes could be
        kept."""
        if not self._waiting or now < self._next_at:
            return []
        if self._is_unanswered and now - self._returned_at < COMES_BACK_WITHIN:
            self._next_at = self._returned_at + COMES_BACK_WITHIN
            return []
        self._learn()
        self.forget(now)
        tags = self._chosen(room)
        for tag in tags:
            refusal = self._waiting.pop(tag)
            self._on_the_way.setdefault(refusal.address, deque()).append((now, refusal))
        self._returned, self._returned_at = len(tags), now
        self._next_at = now + self._delay
        return tags

    def came_again(self, address: bytes, now: float) -> Refusal | None:
        """The refusal of a message with this address that came once more; None if none was expected. Messages of one
        address keep their order."""
        found = self._on_the_way.get(address)
        if found is None:
            return None
        _drop_late(found, now)
        refusal = found.popleft()[1] if found else None
        if not found:
            del self._on_the_way[address]
        return refusal

    def forget(self, now: float) -> None:
        """Forget messages that were returned and didn't come again. Done at intervals only, as all of them are looked
        at."""
        if now - self._forgot_at < FORGOTTEN_AFTER:
            return
        self._forgot_at = now
        for address, found in tuple(self._on_the_way.items()):
            _drop_late(found, now)
            if not found:
                del self._on_the_way[address]

    def return_all(self, now: float) -> list[int]:
        """The tags of all unacknowledged messages, which are returned now: nobody waits for them here any more."""
        tags = list(self._waiting)
        for refusal in self._waiting.values():
            self._on_the_way.setdefault(refusal.address, deque()).append((now, refusal))
        self._waiting.clear()
        if tags:
            self._returned, self._returned_at = len(tags), now
        return tags

    def fared(self, *, well: bool, now: float) -> None:
        """Note the result of a message that came again: `well` if it got through, or a copy is kept now; otherwise it
        is parked once more."""
        if not well:
            self._fared_badly += 1
            if now >= self._returned_at + self._delay:
                self.hurry(now)
            return
        self._fared_well += 1
        if 2 * self._fared_well >= self._returned:
            self.hurry(now)

    def fits(self, room: int) -> bool:
        """True if a copy of the next message to return could be kept in so many bytes."""
        return bool(self._waiting) and self._first.size <= room

    def hurry(self, now: float) -> None:
        """Return the next messages soon: more may get through now."""
        self._next_at = min(self._next_at, now + SHORTEST)

    @property
    def _first(self) -> Refusal:
        return next(iter(self._waiting.values()))

    @property
    def _is_unanswered(self) -> bool:
        """True if nothing is known of the messages that were returned last."""
        return bool(self._returned) and not self._fared_well and not self._fared_badly

    @property
    def _longest(self) -> float:
        return SPARINGLY if self.returns_are_counted else LONGEST

    def _learn(self) -> None:
        """Adapt the delay and the number of messages to the results of those that were returned last."""
        well, badly = self._fared_well, self._fared_badly
        self._fared_well = self._fared_badly = 0
        if well and well >= badly:
            self._scale, self._delay = min(2 * self._scale, _LARGEST_SCALE), SHORTEST
        elif well and not self.returns_are_counted:
            self._scale, self._delay = 1, max(self._delay / 2, SHORTEST)
        elif self._returned:
            self._scale, self._delay = 1, self._longest if self.returns_are_counted else min(2 * self._delay, LONGEST)

    def _chosen(self, room: int) -> list[int]:
        most = min(FEW_BYTES * self._scale, MOST_BYTES)
        if self.fits(room):  # what is beyond that would come back for nothing
            most = min(most, room)
        chosen: list[int] = []
        size = 0
        for tag, refusal in islice(self._waiting.items(), FEW * self._scale):
            size += refusal.size
            if chosen and size > most:
                break
            chosen.append(tag)
        return chosen


def _drop_late(returned: deque[tuple[float, Refusal]], now: float) -> None:
    while returned and now - returned[0][0] > FORGOTTEN_AFTER:
        returned.popleft()
