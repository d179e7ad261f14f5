"""Messages that the downstream refused by basic.nack: when each is tried again, and which one will never get through.

A full queue refuses whatever is for it, so a refusal alone shows nothing about the message. All that wait are tried
again in rounds, in their order, with growing pauses. A message is given up once it was refused for long enough while
others got through; but not while refused ones with the same address do, since a queue that drains slowly takes them one
after another.

Why: docs/decisions/0012-keep-until-confirmed.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHORTEST: Final = 0.1
LONGEST: Final = 15.0
AT_ONCE: Final = 4 * 1024 * 1024  # bytes that are tried again and not answered yet
_MOST_ADDRESSES: Final = 10_000


@dataclass(slots=True)
class _Waiting:
    """A refused message: `tried` is when it was published last, `before` the time before that."""

    address: bytes
    size: int
    since: float
    tried: float
    before: float


class Refusals:
    """The refused messages of one link. They are named by their delivery tags; times are seconds of one clock."""

    def __init__(self, give_up_after: float | None) -> None:
        """`give_up_after` is in seconds; with None no message is ever given up."""
        self._give_up_after = give_up_after
        self._found: dict[int, _Waiting] = {}
        self._waiting: set[int] = set()  # those that aren't tried now, nor given up
        self._round: list[int] = []  # what is still to be tried in this round, the first at the end
        self._trying: set[int] = set()
        self._bytes = 0  # of those
        self._delay = SHORTEST
        self._is_fruitful = False
        self._next_at = 0.0
        self._passed_at = float("-inf")
        self._recovered: dict[bytes, float] = {}  # by address, when a refused message last got through

    @property
    def count(self) -> int:
        """The number of messages that wait or are being tried again."""
        return len(self._waiting) + len(self._trying)

    @property
    def oldest(self) -> tuple[float, bytes] | None:
        """The time at which the message that has waited longest was first refused, and its address; None if there is
        none."""
        return min(((message.since, message.address) for message in self._found.values()), default=None)

    @property
    def wakes_at(self) -> float | None:
        """The time at which `to_try` returns messages; None if none wait, or if it needs a response of the broker
        first."""
        if self._round:
            return 0.0 if self._bytes < AT_ONCE else None
        return self._next_at if self._waiting and not self._is_in_round else None

    def refused(
        self,
        tag: int,
        address: bytes,
        size: int,
        *,
        now: float,
        since: float | None = None,
        before: float | None = None,
    ) -> bool:
        """Note a message that is refused for the first time here; True if it is to be given up. One that was refused
        before under another tag was first refused at `since`, and last tried at `before`."""
        if not self._waiting and not self._trying:
            self._delay = SHORTEST
            self._next_at = now + SHORTEST
        found = _Waiting(address, size, now if since is None else since, now, now if before is None else before)
        self._found[tag] = found
        self._waiting.add(tag)
        return since is not None and self._is_hopeless(found, now)

    def to_try(self, now: float) -> list[int]:
        """The tags of the messages to publish again now."""
        if not self._is_in_round and self._waiting and now >= self._next_at:
            self._round = sorted(self._waiting, reverse=True)
            self._is_fruitful = False
        tried = []
        while self._round and self._bytes < AT_ONCE:
            tag = self._round.pop()
            if tag in self._waiting:
                tried.append(tag)
                self._try(tag, now)
        return tried

    def refused_again(self, tag: int, now: float) -> bool:
        """Note that a message was refused again; True if it is to be given up. Until then it waits."""
        self._tried(tag)
        self._waiting.add(tag)
        is_hopeless = self._is_hopeless(self._found[tag], now)
        self._end_round(now)
        return is_hopeless

    def arrived(self, tag: int, now: float) -> None:
        """Note that a message that was tried again got through."""
        self._tried(tag)
        self.recovered(self._found.pop(tag).address, now)
        self._is_fruitful = True
        self._end_round(now)

    def recovered(self, address: bytes, now: float) -> None:
        """Note that a message with this address that had been refused got through."""
        if len(self._recovered) >= _MOST_ADDRESSES:
            self._recovered.clear()
        self._recovered[address] = now

    def forget_recovered(self) -> None:
        """Forget which addresses recovered: no message is refused any more."""
        self._recovered.clear()

    def passed(self, now: float) -> None:
        """Note that a message that was not refused before got through."""
        self._passed_at = now

    def give_up(self, tag: int) -> None:
        """Stop trying a message: it is on its way elsewhere."""
        self._waiting.discard(tag)

    def wait_on(self, tag: int, now: float) -> None:
        """Go on trying a message: it could not be put elsewhere."""
        self._waiting.add(tag)
        if not self._is_in_round:
            self._next_at = max(self._next_at, now + self._delay)

    def forget(self, tag: int) -> None:
        """Forget a message: it is elsewhere."""
        self._found.pop(tag, None)
        self._waiting.discard(tag)

    @property
    def _is_in_round(self) -> bool:
        return bool(self._round or self._trying)

    def _try(self, tag: int, now: float) -> None:
        message = self._found[tag]
        message.before, message.tried = message.tried, now
        self._waiting.discard(tag)
        self._trying.add(tag)
        self._bytes += message.size

    def _tried(self, tag: int) -> None:
        self._trying.discard(tag)
        self._bytes -= self._found[tag].size

    def _is_hopeless(self, message: _Waiting, now: float) -> bool:
        due = self._due(message)
        return due is not None and now >= due and self._passed_at >= message.before

    def _due(self, message: _Waiting) -> float | None:
        """The time from which on the message may be given up; None if never."""
        if self._give_up_after is None:
            return None
        return max(message.since, self._recovered.get(message.address, 0.0)) + self._give_up_after

    def _end_round(self, now: float) -> None:
        """End the round if no message of it is left. The next round comes in time for a message that may be given up
        then."""
        if self._is_in_round:
            return
        self._delay = SHORTEST if self._is_fruitful else min(2 * self._delay, LONGEST)
        dues = [due for tag in self._waiting if (due := self._due(self._found[tag])) is not None and due > now]
        self._next_at = max(now + SHORTEST, min([now + self._delay, *dues]))
