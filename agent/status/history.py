"""The recent history of one link: changes of its status, samples, its rate.

Samples are packed into rings of bytes, so little memory that thousands of links can have them.

Why: docs/decisions/0056-history-rings.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from sys import intern
from typing import Annotated, Any, Final, NamedTuple, NotRequired, TypedDict, cast

from agent.core.export_event import Reason
from agent.core.links.lag import LinkRate
from agent.core.links.lifecycle import Status
from agent.core.text import rfc3339
from agent.status.json_schema import Count, Seconds, Time

TRANSITIONS: Final = 50
WINDOW: Final = 900.0
EVERY: Final = 15.0
_FLOW_WINDOW: Final = 60.0  # seconds that a flow is an average of
_FLOW_LEAST: Final = 1.0  # of them; fewer say nothing
_PACKED: Final = struct.Struct("<dQQIqf")
_UNKNOWN: Final = -1
_STEP_PACKED: Final = struct.Struct("<dQIf")
_STEP_UNKNOWN: Final = 0  # less than any backlog, to which one is added
_STEP_MOST: Final = 2**32 - 1
RATE_WINDOW: Final = 10.0  # seconds that a link's rate is an average of
_RATE_LEAST: Final = 1.0  # of them, for a link that is new
_ROUND: Final = 2.0  # a link that moves is looked at within this time


class Range(StrEnum):
    """The time range of a history."""

    QUARTER = "15m"
    HOUR = "1h"
    DAY = "24h"


SECONDS: Final = {Range.QUARTER: WINDOW, Range.HOUR: 3_600.0, Range.DAY: 86_400.0}
LONG: Final = (Range.HOUR, Range.DAY)
STEPS: Final = {Range.QUARTER: EVERY, Range.HOUR: 60.0, Range.DAY: 600.0}


class LinkSample(NamedTuple):
    at: float
    forwarded: int
    bytes: int
    in_flight: int
    backlog: int | None
    oldest_unconfirmed_seconds: float


class RingBuffer:
    """The last `most` records of one format."""

    __slots__ = ("_bytes", "_first", "_most", "_packed")

    def __init__(self, packed: struct.Struct, most: int) -> None:
        self._packed = packed
        self._most = most
        self._bytes = bytearray()
        self._first = 0  # the place of the oldest, once it is full

    def __len__(self) -> int:
        return len(self._bytes) // self._packed.size

    def append(self, *values: Any) -> None:
        if len(self) < self._most:
            self._bytes += self._packed.pack(*values)
        else:
            self._packed.pack_into(self._bytes, self._first * self._packed.size, *values)
            self._first = (self._first + 1) % self._most

    def replace_last(self, *values: Any) -> None:
        self._packed.pack_into(self._bytes, self._place(-1), *values)

    def last(self) -> tuple[Any, ...] | None:
        return self._packed.unpack_from(self._bytes, self._place(-1)) if self._bytes else None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The records, oldest first."""
        return (self._packed.unpack_from(self._bytes, self._place(number)) for number in range(len(self)))

    def __reversed__(self) -> Iterator[tuple[Any, ...]]:
        count = len(self)
        return (self._packed.unpack_from(self._bytes, self._place(-number)) for number in range(1, count + 1))

    def _place(self, number: int) -> int:
        return (self._first + number) % len(self) * self._packed.size


class StepBuffer:
    """One sample for each step of so many `seconds`: the last `size` of them, 24 bytes each."""

    __slots__ = ("_ring", "_seconds")

    def __init__(self, seconds: float, size: int) -> None:
        self._seconds = seconds
        self._ring = RingBuffer(_STEP_PACKED, size)

    def put(self, sample: LinkSample) -> None:
        """The step keeps its last total, and the most that waited in it."""
        at, oldest = sample.at, sample.oldest_unconfirmed_seconds
        waiting = _STEP_UNKNOWN if sample.backlog is None else min(sample.backlog + 1, _STEP_MOST)
        last = self._ring.last()
        if last is not None and last[0] // self._seconds == at // self._seconds:
            self._ring.replace_last(at, sample.forwarded, max(waiting, last[2]), max(oldest, last[3]))
        else:
            self._ring.append(at, sample.forwarded, waiting, oldest)

    def __iter__(self) -> Iterator[LinkSample]:
        """The samples, oldest first, without bytes and messages in flight."""
        for at, forwarded, waiting, oldest in self._ring:
            yield LinkSample(at, forwarded, 0, 0, None if waiting == _STEP_UNKNOWN else waiting - 1, round(oldest, 3))


class MessageRate:
    """Messages in a second, from the totals of the last seconds: the one definition for page, commands and API. A link
    that stands still adds none."""

    __slots__ = ("_points",)

    def __init__(self, at: float, total: int) -> None:
        self._points = [(at, total)]

    def add(self, at: float, total: int) -> None:
        """A total that shrank, or a clock that was set back, begins anew."""
        last_at, last = self._points[-1]
        if total < last or at < last_at:
            self._points = [(at, total)]
            return
        self._points.append((at, total))
        while self._points[1][0] <= at - RATE_WINDOW:
            del self._points[0]

    def rate(self, at: float, total: int) -> float:
        begin = at - RATE_WINDOW
        first_at, first = self._points[0]
        for point_at, point in self._points:
            if point_at > begin:
                break
            first_at, first = point_at, point
        # Where there was no look just before, nothing had moved since the one that is older.
        span = RATE_WINDOW if first_at <= begin - _ROUND else max(_RATE_LEAST, at - first_at)
        return max(0, total - first) / span


class StatusChangeView(TypedDict):
    at: Time
    status: Status
    reason: Reason
    error: str | None


class SampleView(TypedDict):
    at: Time
    forwarded: Count
    backlog: Count | None
    oldest_unconfirmed_seconds: Seconds
    bytes: NotRequired[Count]
    in_flight: NotRequired[Count]


class HistoryView(TypedDict):
    transitions: list[StatusChangeView]
    samples: list[SampleView]
    range: Annotated[object, ("enum", tuple(Range))]
    step_seconds: Seconds


class History:
    """The last transitions, and samples: each 15 s for 15 minutes, each minute for an hour, each ten minutes for a
    day. A quiet link is not sampled."""

    __slots__ = ("_day", "_hour", "_sampled_at", "_samples", "_transitions")

    def __init__(self) -> None:
        self._transitions: list[tuple[float, Status, Reason, str]] = []  # an empty deque takes 0.7 KB a link
        self._samples = RingBuffer(_PACKED, int(WINDOW / EVERY) + 1)
        self._hour, self._day = (StepBuffer(STEPS[span], int(SECONDS[span] / STEPS[span]) + 1) for span in LONG)
        self._sampled_at = float("-inf")

    def add_transition(self, at: float, status: Status, reason: Reason, error: str) -> None:
        # The error of an unreachable broker is shared by all its links.
        self._transitions.append((at, status, reason, intern(error)))
        del self._transitions[:-TRANSITIONS]

    def is_due(self, at: float) -> bool:
        return not 0 <= at - self._sampled_at < EVERY

    def add_sample(self, sample: LinkSample) -> None:
        self._sampled_at = sample.at
        backlog = _UNKNOWN if sample.backlog is None else sample.backlog
        self._samples.append(*sample[:4], backlog, sample.oldest_unconfirmed_seconds)
        for steps in (self._hour, self._day):
            steps.put(sample)

    def flow(self, current: LinkSample) -> LinkRate:
        """The rate and growth over the last minute, or since the last sample before that; how many messages wait may be
        known for less."""
        first: LinkSample | None = None
        counted: LinkSample | None = None
        for values in reversed(self._samples):
            if first is not None and current.at - values[0] > _FLOW_WINDOW:
                break
            first = _unpacked(values)
            counted = counted if first.backlog is None else first
        if first is None or current.at - first.at < _FLOW_LEAST:
            return LinkRate(0.0, None)
        rate = max(0, current.forwarded - first.forwarded) / (current.at - first.at)
        return LinkRate(rate, None if counted is None else _growth(counted, current))

    def view(self, current: LinkSample, span: Range = Range.QUARTER) -> HistoryView:
        """The history for the API, oldest first; the current values come last. A sample of a long range has only what
        charts show."""
        begin = current.at - SECONDS[span]
        long: Iterable[LinkSample] = self._hour if span is Range.HOUR else self._day
        kept = map(_unpacked, self._samples) if span is Range.QUARTER else long
        shown = [each._asdict() | {"at": rfc3339(each.at)} for each in (*kept, current) if each.at >= begin]
        if span in LONG:
            for each in shown:
                del each["bytes"], each["in_flight"]
        return {
            "range": span,
            "step_seconds": STEPS[span],
            "transitions": [
                {"at": rfc3339(at), "status": status, "reason": reason, "error": error or None}
                for at, status, reason, error in self._transitions
            ],
            "samples": cast("list[SampleView]", shown),
        }


def _growth(first: LinkSample, current: LinkSample) -> float | None:
    """Growth of the backlog, in messages a second."""
    span = current.at - first.at
    if first.backlog is None or current.backlog is None or span < _FLOW_LEAST:
        return None
    return (current.backlog - first.backlog) / span


def _unpacked(values: tuple[Any, ...]) -> LinkSample:
    at, forwarded, size, in_flight, backlog, oldest = values
    return LinkSample(at, forwarded, size, in_flight, None if backlog == _UNKNOWN else backlog, round(oldest, 3))
