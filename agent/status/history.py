"""The recent history of one link, in so little memory that thousands of links can have one."""

from __future__ import annotations

import struct
from enum import StrEnum
from sys import intern
from typing import Any, Final, NamedTuple

from agent.core.export_event import Reason
from agent.core.links.critical import LinkRate
from agent.core.links.lifecycle import Status
from agent.status.tier import Ring, Step, Tier
from agent.status.times import rfc3339

TRANSITIONS: Final = 50
WINDOW: Final = 900.0
EVERY: Final = 15.0
RECENT: Final = 60.0  # seconds that a rate is an average of
LEAST: Final = 1.0  # of them; fewer say nothing
_PACKED: Final = struct.Struct("<dQQIqf")
_UNKNOWN: Final = -1


class Range(StrEnum):
    """How far back a history is read."""

    QUARTER = "15m"
    HOUR = "1h"
    DAY = "24h"


SECONDS: Final = {Range.QUARTER: WINDOW, Range.HOUR: 3_600.0, Range.DAY: 86_400.0}
LONG: Final = (Range.HOUR, Range.DAY)
STEPS: Final = {Range.QUARTER: EVERY, Range.HOUR: 60.0, Range.DAY: 600.0}


class Point(NamedTuple):
    at: float
    forwarded: int
    bytes: int
    in_flight: int
    backlog: int | None
    oldest_unconfirmed_seconds: float


class History:
    """The last transitions, and samples: each 15 s for 15 minutes, each minute for an hour, each ten minutes for a
    day. A quiet link is not sampled."""

    __slots__ = ("_day", "_hour", "_sampled_at", "_samples", "_transitions")

    def __init__(self) -> None:
        self._transitions: list[tuple[float, Status, Reason, str]] = []  # an empty deque takes 0.7 KB a link
        self._samples = Ring(_PACKED, int(WINDOW / EVERY) + 1)
        self._hour, self._day = (Tier(STEPS[span], int(SECONDS[span] / STEPS[span]) + 1) for span in LONG)
        self._sampled_at = float("-inf")

    def turn(self, at: float, status: Status, reason: Reason, error: str) -> None:
        # The error of an unreachable broker is shared by all its links.
        self._transitions.append((at, status, reason, intern(error)))
        del self._transitions[:-TRANSITIONS]

    def is_due(self, at: float) -> bool:
        return not 0 <= at - self._sampled_at < EVERY

    def sample(self, sample: Point) -> None:
        self._sampled_at = sample.at
        backlog = _UNKNOWN if sample.backlog is None else sample.backlog
        self._samples.append(*sample[:4], backlog, sample.oldest_unconfirmed_seconds)
        for tier in (self._hour, self._day):
            tier.put(_step(sample))

    def flow(self, current: Point) -> LinkRate:
        """Over the last minute or since the last sample before that; how many messages wait may be known for less."""
        first: Point | None = None
        counted: Point | None = None
        for values in reversed(self._samples):
            if first is not None and current.at - values[0] > RECENT:
                break
            first = _unpacked(values)
            counted = counted if first.backlog is None else first
        if first is None or current.at - first.at < LEAST:
            return LinkRate(0.0, None)
        rate = max(0, current.forwarded - first.forwarded) / (current.at - first.at)
        return LinkRate(rate, None if counted is None else _growth(counted, current))

    def view(self, current: Point, span: Range = Range.QUARTER) -> dict[str, Any]:
        """Oldest first; the current values come last. A sample of a long range has what charts show."""
        begin = current.at - SECONDS[span]
        samples: list[Point] | list[Step]
        if span is Range.QUARTER:
            samples = [*(_unpacked(values) for values in self._samples), current]
        else:
            samples = [*(self._hour if span is Range.HOUR else self._day), _step(current)]
        return {
            "range": span,
            "step_seconds": STEPS[span],
            "transitions": [
                {"at": rfc3339(at), "status": status, "reason": reason, "error": error or None}
                for at, status, reason, error in self._transitions
            ],
            "samples": [each._asdict() | {"at": rfc3339(each.at)} for each in samples if each.at >= begin],
        }


def _step(sample: Point) -> Step:
    return Step(sample.at, sample.forwarded, sample.backlog, sample.oldest_unconfirmed_seconds)


def _growth(first: Point, current: Point) -> float | None:
    """Of the backlog, by messages in a second."""
    span = current.at - first.at
    if first.backlog is None or current.backlog is None or span < LEAST:
        return None
    return (current.backlog - first.backlog) / span


def _unpacked(values: tuple[Any, ...]) -> Point:
    at, forwarded, size, in_flight, backlog, oldest = values
    return Point(at, forwarded, size, in_flight, None if backlog == _UNKNOWN else backlog, round(oldest, 3))
