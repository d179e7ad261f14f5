"""`prefetch-count: auto`: enough on the way to fill the path, never so many bytes that a broker would choke on them.

A broker sends up to the prefetch whether or not we read, so what counts is bytes, not messages.
"""

from __future__ import annotations

from typing import Final

START: Final = 1_000
NEAR: Final = 4_000  # fewer leave queue and channel waiting for each other, even where the path is short
MOST: Final = 16_000  # delivery tags of a channel that a broker keeps track of one by one
LARGEST: Final = 65_535  # what AMQP has bytes for
LEAST: Final = 8
FRUITLESS: Final = 3  # so many sessions in a row that brought messages and confirmed none
# After these a broker may drop what came back too often, so little comes and goes; but what the downstream refuses must
# not be all of it, or nothing else would ever get through.
CAREFUL: Final = LEAST
BYTES_ON_THE_WAY: Final = 32 * 1024 * 1024
_STEP: Final = 4
_NEARLY: Final = 0.8


def sized(current: int, *, unsettled: int, rate: float, round_trip: float, average_size: float) -> int:
    """The prefetch for the next while, in few and geometric steps: each costs a new consumer.

    `unsettled` messages wait here for their confirms, `rate` of them a second are on the wire both ways.
    """
    limit = max(LEAST, min(MOST, int(BYTES_ON_THE_WAY / max(average_size, 1.0))))
    if limit * 2 <= current:
        return limit
    on_the_wire = rate * round_trip
    is_full = unsettled + on_the_wire >= _NEARLY * current
    wanted = min(current * _STEP, limit) if is_full and current < max(NEAR, 4 * on_the_wire) else current
    return wanted if wanted >= current * 2 else current


def room_for(held: int, room: int, *, flowing: int) -> int:
    """How many places of the prefetch to keep for `held` messages that go nowhere, where `room` are kept now.

    In geometric steps, too, and never fewer than before: what is held is given back now and then, and comes again.
    Where messages go one by one (`flowing` 1), exactly as many as are held, so that there is one on the way.
    """
    if flowing == 1:
        return max(room, min(held, MOST))
    return min(room + max(held, flowing), MOST) if held - room >= flowing / 2 else room
