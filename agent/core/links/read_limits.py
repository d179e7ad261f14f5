"""How much a link reads: the messages ahead of those that are settled (`prefetch-count`), and so many in a second
(`rate-limit`).

A broker sends up to the prefetch whether or not we read, so `auto` counts bytes, not messages: enough in flight to fill
the path, and bounded, so that no broker is overloaded.

A rate limit is a token bucket that holds a second's worth. It is kept as one time, when what was read is paid for: what
is read moves it on, and while it is in the future nothing more is read. A bucket that is full is a second in the past.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START_PREFETCH: Final = 1_000
NEAR_PREFETCH: Final = 4_000  # with fewer, queue and channel wait for each other even on a short path
MOST_PREFETCH: Final = 16_000  # delivery tags of a channel that a broker tracks one by one
LARGEST_PREFETCH: Final = 65_535  # the limit of AMQP
MOST_HELD: Final = LARGEST_PREFETCH - MOST_PREFETCH  # of them, while as many as usual flow
LEAST_PREFETCH: Final = 8
FRUITLESS: Final = 3  # this many sessions in a row that received messages and confirmed none
# After these a broker may drop messages that were returned too often, so few are in flight; but refused ones must not
# take all places, or no others would ever get through.
CAREFUL: Final = LEAST_PREFETCH
BYTES_ON_THE_WAY: Final = 32 * 1024 * 1024
_STEP: Final = 4
_NEARLY: Final = 0.8


def sized(current: int, *, unsettled: int, rate: float, round_trip: float, average_size: float) -> int:
    """The prefetch for the next period, in few and geometric steps: each costs a new consumer.

    `unsettled` messages wait here for their confirms, `rate` of them per second are on the wire both ways.
    """
    limit = max(LEAST_PREFETCH, min(MOST_PREFETCH, int(BYTES_ON_THE_WAY / max(average_size, 1.0))))
    if limit * 2 <= current:
        return limit
    on_the_wire = rate * round_trip
    is_full = unsettled + on_the_wire >= _NEARLY * current
    wanted = min(current * _STEP, limit) if is_full and current < max(NEAR_PREFETCH, 4 * on_the_wire) else current
    return wanted if wanted >= current * 2 else current


def room_for(held: int, room: int, *, flowing: int) -> int:
    """The number of places of the prefetch to reserve for `held` messages, if `room` are reserved now.

    In geometric steps, too, and never fewer than before: held messages are returned at intervals, and redelivered. If
    messages are sent one by one (`flowing` 1), exactly as many as are held, so that one is in flight.
    """
    if flowing == 1:
        return max(room, min(held, MOST_HELD))
    return min(room + max(held, flowing), MOST_HELD) if held - room >= flowing / 2 else room


BURST: Final = 1.0  # seconds whose share may be read at once, after as long a time in which less came
_LUMP: Final = BURST / 4  # what is read at once is no more than the share of so many seconds
_SMALLEST: Final = 48  # bytes of a delivery without a body, in frames with the shortest names
_ASSUMED_SIZE: Final = 64 * 1024  # bytes of a message, before any has come


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most so many messages, and bytes of their bodies, in a second; None doesn't limit them."""

    messages: int | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        messages = "" if self.messages is None else f"{self.messages:,} messages/s"
        octets = "" if self.bytes is None else f"{self.bytes:,} bytes/s"
        return " and ".join(filter(None, (messages, octets)))

    @property
    def lump(self) -> int:
        """The bytes of frames to read at once, between two looks at the buckets: a read may bring what waited."""
        messages = LARGEST_PREFETCH if self.messages is None else self.messages
        by_count = max(1, int(messages * _LUMP)) * _SMALLEST
        return by_count if self.bytes is None else max(1, min(by_count, int(self.bytes * _LUMP)))

    def prefetch(self, average_size: float | None) -> int:
        """The number of messages that a broker may send ahead: no more than are read in the time of a burst, as a read
        may bring all of them. `average_size` is that of their bodies, None if it isn't known."""
        by_count = LARGEST_PREFETCH if self.messages is None else self.messages * BURST
        size = _ASSUMED_SIZE if average_size is None else max(average_size, 1.0)
        by_bytes = LARGEST_PREFETCH if self.bytes is None else self.bytes * BURST / size
        return max(1, min(LARGEST_PREFETCH, int(min(by_count, by_bytes))))


class TokenBuckets:
    """The buckets of one link, for messages and for bytes; both are empty at first."""

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit = limit
        self._messages_until = self._bytes_until = now

    def take(self, now: float, messages: int, octets: int) -> float:
        """Charge for what was read; return the seconds to pause before the next read."""
        if self.limit.messages is not None:
            self._messages_until = max(self._messages_until, now - BURST) + messages / self.limit.messages
        if self.limit.bytes is not None:
            self._bytes_until = max(self._bytes_until, now - BURST) + octets / self.limit.bytes
        return self.pause(now)

    def change(self, limit: RateLimit, now: float) -> None:
        """Replace the limit: what is still to be paid for is paid for at the new one."""
        former, self.limit = self.limit, limit
        self._messages_until = _paid(self._messages_until, now, former.messages, limit.messages)
        self._bytes_until = _paid(self._bytes_until, now, former.bytes, limit.bytes)

    def pause(self, now: float) -> float:
        """The seconds to pause from now on."""
        until = [
            until
            for until, rate in ((self._messages_until, self.limit.messages), (self._bytes_until, self.limit.bytes))
            if rate is not None
        ]
        return max(0.0, max(until, default=now) - now)


def _paid(until: float, now: float, former: int | None, rate: int | None) -> float:
    """The time when a debt is paid for at another rate."""
    return now + (until - now) * former / rate if until > now and former and rate else until
