"""The messages that a source's queue provably holds no more: neither waiting nor unacknowledged.

A figure of a look is the broker's of some moment within the `late` seconds before it, and each counter's may be of
another moment. Only `messages` and `held`, what is unacknowledged of them, are of one: brokers report them together.
Two things are proof, and neither needs an order in the queue, nor a sum of counters.

- It was seen empty: what entered before that moment was gone then.
- Nothing waited at one moment, nor at another that is later by more than a delivery can stay unacknowledged, and
  nothing was delivered again in between. What was there at the first and at the second was unacknowledged at both. So
  either it was so all the time, which takes too long, or it was delivered again.

Why: docs/decisions/0068-standby-trim.md
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

CONSUMER_TIMEOUT: Final = 1800.0
"""Seconds. Brokers' default: a delivery that isn't acknowledged by then closes its channel, and is returned."""
TICK: Final = 120.0
"""A broker compares with that timeout once a minute."""
MOST_LOOKS: Final = 240
"""Of a queue; of more, those that are closer to the one before are left out."""


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """A queue at the source: the messages in it with those that are unacknowledged; and since its `identity` began, its
    deliveries to consumers, those of them that were marked as redelivered, and its acknowledgements. `identity` changes
    whenever counters may begin anew or messages may come back: with a restart of any node, another leader, a queue that
    is declared again, or one that isn't running. None: the broker shows no such figure."""

    identity: str
    messages: int | None
    delivered: int | None
    redelivered: int | None
    acknowledged: int | None

    def continues(self, earlier: SourceFigures) -> bool:
        """True if this is the same queue, and no counter has fallen."""
        pairs = (
            (self.delivered, earlier.delivered),
            (self.redelivered, earlier.redelivered),
            (self.acknowledged, earlier.acknowledged),
        )
        return self.identity == earlier.identity and all(
            now is None or before is None or now >= before for now, before in pairs
        )


@dataclass(frozen=True, slots=True)
class _NothingWaited:
    at: float
    is_empty: bool
    delivered: int | None


class SourceProof:
    """Looks at one queue, from the time `now` on. `after`: seconds for which what was consumed is kept nevertheless.
    `timeout`: seconds after which the source returns what isn't acknowledged; None: it doesn't, and only an empty queue
    is proof."""

    __slots__ = (
        "_after", "_calm_since", "_found", "_last", "_late", "_since", "_spacing", "_timeout", "gone_before",
        "patience", "stands_still",
    )  # fmt: skip

    def __init__(self, now: float, *, after: float, late: float, timeout: float | None) -> None:
        self._after = after
        self._late = late
        self._timeout = None if timeout is None else timeout + TICK
        self.patience = max(after, self._timeout or 0.0) + 8 * late
        """Seconds after which a queue whose consumers keep up is proven to have lost what entered before."""
        self._spacing = self.patience / MOST_LOOKS
        self._last: SourceFigures | None = None
        self._since = now
        self._calm_since = now
        self._found: deque[_NothingWaited] = deque()
        self.gone_before: float | None = None
        """All that entered the queue before this time is gone."""
        self.stands_still = False
        """True if what is unacknowledged has been so for longer than the source allows."""

    def look(self, now: float, seen: SourceFigures, held: int) -> bool:
        """Returns False if nothing of before is proven any more."""
        last, self._last = self._last, seen
        if last is None or not seen.continues(last):
            self._since = self._calm_since = now
            self._found.clear()
            self.gone_before, self.stands_still = None, False
            return False
        if seen.redelivered is None or seen.redelivered != last.redelivered:
            self._calm_since = now
        if now < self._since + self._late:
            return True  # its figures may still be of the queue before
        if seen.messages is not None and seen.messages == held and self._is_apart(now, is_empty=not held):
            self._found.append(_NothingWaited(now, not held, seen.delivered))
        while self._found and self._found[0].at < now - self.patience:
            self._found.popleft()
        found = [each.at - self._late for each in (self._emptied(now), self._taken(now, seen.delivered)) if each]
        self.gone_before = max(found + ([] if self.gone_before is None else [self.gone_before]), default=None)
        return True

    @property
    def was_delivered_again(self) -> bool:
        return self._calm_since > self._since

    def _is_apart(self, now: float, *, is_empty: bool) -> bool:
        return not self._found or is_empty > self._found[-1].is_empty or now - self._found[-1].at >= self._spacing

    def _emptied(self, now: float) -> _NothingWaited | None:
        """The last time when the queue was empty, at least `after` ago."""
        return next((each for each in reversed(self._found) if each.is_empty and each.at <= now - self._after), None)

    def _taken(self, now: float, delivered: int | None) -> _NothingWaited | None:
        """The last time when all was with consumers who have had to let it go since."""
        self.stands_still = False
        second = self._last_by(now - self._late)
        if self._timeout is None or delivered is None or second is None:
            return None
        first = self._last_by(second.at - self._late - self._timeout)
        if first is None or first.at - self._late < self._calm_since:
            return None
        self.stands_still = not second.is_empty and delivered == first.delivered
        return None if self.stands_still else first

    def _last_by(self, time: float) -> _NothingWaited | None:
        return next((each for each in reversed(self._found) if each.at <= time), None)
