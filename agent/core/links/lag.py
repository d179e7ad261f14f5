"""The lag of a link: the messages that wait upstream, the time in which nothing was confirmed, and the probes that
measure how long a message takes; and from when on it is critical (`lag-critical`). Durations of messages are
counted in cumulative buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from agent.core.text import counted, in_full, in_words

MOVING: Final = 5.0
QUIET: Final = 600.0  # if nothing is delivered nothing waits: a consumer with room would have received it
OVERDUE: Final = 3  # intervals
_LOOKS: Final = 2
SHRINKS: Final = 0.05  # of what waits in a minute: less is no catching up


class Lag:
    """The lag of one session. A quiet link's queue is read rarely, because a thousand of them must cost almost
    nothing."""

    __slots__ = ("_confirmed", "_is_known", "_looked_at", "_moves", "_rest", "_waits_since", "is_held", "ready")

    def __init__(self, now: float, *, confirmed: int, chance: float) -> None:
        """`chance`, from 0 to 1, spreads the reads of links that started together."""
        self.ready: int | None = None  # messages in the upstream queue when last read
        self.is_held = False  # nothing is read from the source, so what it has sent can't be counted here
        self._confirmed = confirmed
        self._is_known = False
        self._waits_since: float | None = None
        self._moves = True
        self._looked_at = now - MOVING * (1 - chance)
        self._rest = QUIET * chance

    def observe(self, now: float, *, confirmed: int, unsettled: int) -> float:
        """Update the lag; returns the seconds for which messages have waited and none was confirmed."""
        moved = confirmed != self._confirmed
        self._confirmed = confirmed
        if moved:
            self._is_known = False  # ready messages may have been forwarded by now
        waits = unsettled > 0 or (self._is_known and bool(self.ready))
        self._moves = self._moves or moved or waits
        if not waits:
            self._waits_since = None
        elif moved or self._waits_since is None:
            self._waits_since = now
        return 0.0 if self._waits_since is None else now - self._waits_since

    def behind(self, unsettled: int, *, prefetch: int) -> int | None:
        """The number of messages that wait at the source and here; None if unknown. If some are ready there although
        nothing is read, the consumer has as many as its prefetch allows. If none are, it may have up to that many;
        these aren't counted."""
        if self.ready is None:
            return None
        return self.ready + (max(unsettled, prefetch) if self.is_held and self.ready else unsettled)

    def forgive(self) -> None:
        """Start the lag again: nothing could be confirmed until now, and that doesn't count."""
        self._waits_since = None

    def expect_growth(self) -> None:
        """Note that nothing is taken from the queue for now, so messages may wait without anything moving here."""
        self._moves = True

    @property
    def due_at(self) -> float:
        """The time at which to read the queue's depth again."""
        return self._looked_at + (MOVING if self._moves else self._rest)

    def counted(self, ready: int) -> None:
        """Note that this many messages are ready upstream."""
        self.ready = ready
        self._is_known = True

    def asks(self, now: float) -> None:
        """Note that the depth is being read now."""
        if not self._moves:
            self._rest = QUIET
        self._looked_at = now
        self._moves = False


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
    _passed: int | None = None  # once so many are taken, all are that stood before it

    def look(self, seen: Passage) -> bool:
        """True if the probe is lost. Messages that the broker has sent and that aren't read here are at most the
        prefetch."""
        if self._passed is not None and seen.taken >= self._passed:
            return True
        self._looks_at_nothing = 0 if seen.ready or seen.underway else self._looks_at_nothing + 1
        passed = seen.taken + seen.ready + seen.prefetch
        self._passed = passed if self._passed is None else min(self._passed, passed)
        return self._looks_at_nothing >= _LOOKS


@dataclass(frozen=True, slots=True)
class LagCritical:
    """A limit for the lag of a link: in seconds, or in messages that wait."""

    seconds: float | None = None
    messages: int | None = None

    def is_reached(self, *, backlog: int | None, behind: float | None) -> bool:
        """True if the backlog or the seconds behind have reached their limit; what isn't known has not."""
        if self.messages is not None and backlog is not None and backlog >= self.messages:
            return True
        return self.seconds is not None and behind is not None and behind >= self.seconds


def seconds_behind(
    backlog: int | None, rate: float, *, stuck: float, probe: float | None, interval: float | None = None
) -> float | None:
    """Seconds that a message that arrives now waits: the time that the last probe took, else the backlog divided by the
    present rate of messages in a second; where none moves, the time since one did. None while the backlog isn't known.

    `interval` is that of probes. One that is overdue may still be on its way, so its time is only a lower bound.
    """
    estimate = _estimate(backlog, rate, stuck)
    if probe is None:
        return estimate
    is_overdue = interval is not None and probe >= OVERDUE * interval
    return max(probe, estimate or 0.0) if is_overdue else probe


def _estimate(backlog: int | None, rate: float, stuck: float) -> float | None:
    if not backlog:
        return None if backlog is None else 0.0
    return backlog / rate if rate > 0 else stuck


@dataclass(frozen=True, slots=True)
class LinkRate:
    """Messages in a second: `rate` is what a link forwards, `growth` what its backlog grows by. None where that isn't
    known."""

    rate: float
    growth: float | None


@dataclass(frozen=True, slots=True)
class LagDescription:
    """`is_at_prefetch`: messages flow, and it has as many unconfirmed as its definition allows, which isn't `auto`.
    `is_limited`: its rate limit holds it."""

    text: str
    is_catching_up: bool = False
    is_at_prefetch: bool = False
    is_limited: bool = False


NO_LAG: Final = LagDescription("")


def describe_lag(
    limit: LagCritical,
    *,
    backlog: int | None,
    behind: float | None,
    flow: LinkRate,
    held: tuple[int, int],
    is_auto: bool,
    limited_by: str = "",
) -> LagDescription:
    """Describe how far a link is behind, and whether that becomes less: "3 min 17 s behind (limit 30 s): in 200/s, out
    47/s, all 10 of its prefetch unconfirmed". `held` is how many messages it has, and may have, unconfirmed; with
    `is_auto` the agent decides how many it may have. `limited_by` is the rate limit that holds it, as text."""
    is_limited = bool(limited_by)
    if limit.seconds is not None:
        far = f"{in_full(round(behind or 0.0))} behind (limit {in_words(limit.seconds)})"
    else:
        far = f"{counted(backlog or 0, 'message waits', 'messages wait')} (limit {limit.messages or 0:,})"
    if is_limited:
        far += f", {held_to(limited_by)}"
    if flow.growth is None:
        return LagDescription(f"{far}: out {_per_second(flow.rate)}", is_limited=is_limited)
    shrinking = -flow.growth
    if backlog and shrinking * 60 > SHRINKS * backlog:
        left = in_words(backlog / shrinking)
        text = f"{far}: catching up at {_per_second(shrinking)}, about {left} left"
        return LagDescription(text, is_catching_up=True, is_limited=is_limited)
    unsettled, prefetch = held
    is_used_up = 0 < prefetch <= unsettled
    used_up = f", all {prefetch:,} of its prefetch unconfirmed" if is_used_up else ""
    text = f"{far}: in {_per_second(max(0.0, flow.rate + flow.growth))}, out {_per_second(flow.rate)}{used_up}"
    return LagDescription(text, is_at_prefetch=is_used_up and not is_auto and flow.rate > 0, is_limited=is_limited)


def held_to(limit: str) -> str:
    """Text on a link whose rate limit holds messages back."""
    return f"held to its rate-limit of {limit}"


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"


class Histogram:
    """`bounds` are the upper, inclusive ends of the buckets; longer durations than the last are counted too."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def add(self, other: Histogram) -> None:
        """Add the counts of a histogram with the same bounds."""
        self.sum += other.sum
        self._counts = [mine + its for mine, its in zip(self._counts, other._counts, strict=True)]

    @property
    def cumulative(self) -> Iterator[int]:
        """The number of durations up to each bound, and the total at the end."""
        return accumulate(self._counts)
