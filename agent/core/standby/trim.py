"""The messages that a standby may take from the head of its copy of a queue: consumed or entered long enough ago.

A message enters the copy after it entered the source's queue. So where the source holds nothing that entered before a
time, the copy needs nothing that entered before that time. Each side is judged by its own figures, and no count of one
is ever compared with a count of the other. Every doubt keeps messages.

**Of the source** (`SourceProof`). A figure of a look is the broker's of some moment within the `late` seconds before
it, and each counter's may be of another moment. Only `messages` and `held`, what is unacknowledged of them, are of one:
brokers report them together. Two things are proof, and neither needs an order in the queue, nor a sum of counters.

- It was seen empty: what entered before that moment was gone then.
- Nothing waited at one moment, nor at another that is later by more than a delivery can stay unacknowledged, and
  nothing was delivered again in between. What was there at the first and at the second was unacknowledged at both. So
  either it was so all the time, which takes too long, or it was delivered again.

**Of the copy** (`CopyPositions`). Messages stand in the order in which they entered, so those that entered before a
time are the first ones. Their number is the queue's depth without what entered since. Figures are late as those of a
source are, so each is taken from a look that makes the number too small rather than too large. To use fewer looks makes
it smaller.

Whoever takes them first holds the deliveries, unacknowledged, until an allowance is `known_at` the last delivery or
later. It then acknowledges the first `messages` of them, and returns the rest. Otherwise what expires in the middle of
the queue meanwhile would move its head further than was counted.

Why: docs/decisions/0068-standby-trim.md
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
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


class TrimDoubt(StrEnum):
    """The reason why nothing is trimmed now."""

    NO_SOURCE = "the source shows no figures of this queue now: see whether it runs, and counts messages"
    NO_COPY = "the standby shows no figures of this queue now: see whether it runs, and counts messages"
    UNCOUNTED = (
        "more messages are in the standby's queue than its broker counted as they entered: see what else sends to it, "
        "such as dead-lettering at the standby"
    )
    STANDS_STILL = (
        "what is unacknowledged at the source stays so for longer than its consumer timeout, or its deliveries aren't "
        "counted: see its consumers"
    )
    DELIVERED_AGAIN = (
        "messages were returned and delivered again at the source, so which of them are gone isn't known until that "
        "has not happened for a while, or the queue has been empty"
    )
    UNPROVEN = (
        "messages waited at the source at each look, so which of them are gone isn't known until its consumers keep up"
    )
    NEW = "the queue hasn't been watched for long enough"


@dataclass(frozen=True, slots=True)
class TrimRule:
    """`after`: seconds since the source consumed what may go. `keep`: seconds after which a copy may go whatever became
    of it. `late`: the age of a figure at most, in seconds, and the time within which a broker applies an
    acknowledgement. `timeout`: seconds after which the source returns what isn't acknowledged, None if it doesn't."""

    after: float
    keep: float
    late: float = 60.0
    timeout: float | None = CONSUMER_TIMEOUT


@dataclass(frozen=True, slots=True)
class Allowance:
    """At least `messages` at the head of the copy may go, those that are held included; `doubt` says why not more. It
    counts from the copy as it was at `known_at` or later."""

    messages: int
    doubt: str | None
    known_at: float = 0.0


class StandbyTrim:
    """One queue and its copy, from the time `now` on."""

    __slots__ = ("_began", "_copy", "_gone", "_proof", "_rule")

    def __init__(self, rule: TrimRule, now: float) -> None:
        self._rule = rule
        self._began = now
        self._proof = _nothing_proven(rule, now)
        self._copy = CopyPositions(span=max(rule.keep, self._proof.patience), late=rule.late)
        self._gone = NOWHERE  # up to this position of the copy, the source holds nothing

    def forget_source(self, now: float) -> None:
        """Prove anew what the source holds no more: what was seen of it until now proves nothing."""
        self._proof = _nothing_proven(self._rule, now)
        self._began, self._gone = now, NOWHERE

    def look(
        self, now: float, source: SourceFigures | None, copy: CopyFigures | None, *, taken: int, held: int
    ) -> Allowance:
        """Compare the figures of now. `taken`: what was acknowledged of the copy so far, counted when that is sent.
        `held`: what is unacknowledged at the source, of the same report as its `messages`."""
        is_same_copy = copy is None or self._copy.look(now, copy, taken)
        is_same_source = source is None or self._proof.look(now, source, held)
        if not (is_same_copy and is_same_source):
            self._gone = NOWHERE
        if source is None or source.messages is None:
            return Allowance(0, TrimDoubt.NO_SOURCE)
        if copy is None or copy.messages is None or copy.entered is None:
            return Allowance(0, TrimDoubt.NO_COPY)
        if not self._copy.is_counted:
            return Allowance(0, TrimDoubt.UNCOUNTED)
        gone = self._proof.gone_before
        if gone is not None:  # the link may be faster than the source's queue, but not by more
            self._gone = max(self._gone, self._copy.entered_before(gone - self._rule.late))
        return Allowance(self._copy.first_ones(self._gone), self._doubt(now, gone), self._copy.known_at)

    def expired(self, now: float) -> int:
        """At least so many at the copy's head entered it more than `keep` ago, by the figures of the last look, and
        before anything is acknowledged after it. It is for queues without a message TTL. What is taken so is held
        first, as above, and counts as `taken`."""
        return self._copy.first_ones(self._copy.entered_before(now - self._rule.keep)) if self._copy.is_counted else 0

    def _doubt(self, now: float, gone: float | None) -> TrimDoubt | None:
        patience = self._rule.after + self._proof.patience
        if gone is not None and now - gone <= patience:
            return None
        if self._proof.stands_still:
            return TrimDoubt.STANDS_STILL
        if self._proof.was_delivered_again:
            return TrimDoubt.DELIVERED_AGAIN
        return TrimDoubt.NEW if now - self._began <= patience else TrimDoubt.UNPROVEN


def _nothing_proven(rule: TrimRule, now: float) -> SourceProof:
    return SourceProof(now, after=rule.after, late=rule.late, timeout=rule.timeout)
