"""`prefetch-count: auto`: enough messages in flight to fill the path, and bounded bytes, so that no broker is
overloaded.

A broker sends up to the prefetch whether or not we read, so bytes count, not messages.
"""

from __future__ import annotations

from typing import Final

START: Final = 1_000
NEAR: Final = 4_000  # with fewer, queue and channel wait for each other even on a short path
MOST: Final = 16_000  # delivery tags of a channel that a broker tracks one by one
LARGEST: Final = 65_535  # the limit of AMQP
MOST_HELD: Final = LARGEST - MOST  # of them, while as many as usual flow
LEAST: Final = 8
FRUITLESS: Final = 3  # this many sessions in a row that received messages and confirmed none
# After these a broker may drop messages that were returned too often, so few are in flight; but refused ones must not
# take all places, or no others would ever get through.
CAREFUL: Final = LEAST
BYTES_ON_THE_WAY: Final = 32 * 1024 * 1024
_STEP: Final = 4
_NEARLY: Final = 0.8


def sized(current: int, *, unsettled: int, rate: float, round_trip: float, average_size: float) -> int:
    """The prefetch for the next period, in few and geometric steps: each costs a new consumer.

    `unsettled` messages wait here for their confirms, `rate` of them per second are on the wire both ways.
    """
    limit = max(LEAST, min(MOST, int(BYTES_ON_THE_WAY / max(average_size, 1.0))))
    if limit * 2 <= current:
        return limit
    on_the_wire = rate * round_trip
    is_full = unsettled + on_the_wire >= _NEARLY * current
    wanted = min(current * _STEP, limit) if is_full and current < max(NEAR, 4 * on_the_wire) else current
    return wanted if wanted >= current * 2 else current


def room_for(held: int, room: int, *, flowing: int) -> int:
    """The number of places of the prefetch to reserve for `held` messages, if `room` are reserved now.

    In geometric steps, too, and never fewer than before: held messages are returned at intervals, and redelivered. If
    messages are sent one by one (`flowing` 1), exactly as many as are held, so that one is in flight.
    """
    if flowing == 1:
        return max(room, min(held, MOST_HELD))
    return min(room + max(held, flowing), MOST_HELD) if held - room >= flowing / 2 else room
