"""`prefetch-count: auto`: enough on the way to fill the path, never so many bytes that a broker would choke on them.

A broker sends up to the prefetch whether or not we read, so what counts is bytes, not messages.
"""

from __future__ import annotations

from typing import Final

START: Final = 1_000
MOST: Final = 16_000  # delivery tags of a channel that a broker keeps track of one by one
LEAST: Final = 8
BYTES_ON_THE_WAY: Final = 32 * 1024 * 1024
_STEP: Final = 4
_NEARLY: Final = 0.8


def on_the_way(rate: float, round_trip: float, in_flight: int) -> float:
    """How many messages a link keeps unacknowledged: those on the wire, and those that wait for a confirm."""
    return rate * round_trip + in_flight


def sized(current: int, *, occupied: float, average_size: float) -> int:
    """The prefetch for the next while; `occupied` is what is on the way now. Few, geometric steps."""
    limit = max(LEAST, min(MOST, int(BYTES_ON_THE_WAY / max(average_size, 1.0))))
    if current > limit:
        return limit
    wanted = current * _STEP if occupied >= _NEARLY * current else current
    return min(wanted, limit)


def is_worth_it(current: int, wanted: int) -> bool:
    """A change costs a new consumer, so small ones are left."""
    return wanted >= 2 * current or 2 * wanted <= current
