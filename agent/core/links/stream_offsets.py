"""Delivery tags ↔ offsets in a stream: how far a stream has been copied.

Tags are 1, 2, 3 …; offsets grow, and leave out what holds no message. So runs of both are kept, not each message.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LARGEST: Final = 2**63 - 1


class StreamOffsets:
    """The offsets of one channel's deliveries."""

    __slots__ = ("_last_noted", "_reached", "_runs")

    def __init__(self) -> None:
        self._runs: deque[tuple[int, int, int]] = deque()  # first tag, last tag, offset of the first
        self._last_noted = -1
        self._reached: int | None = None

    def note(self, tag: int, offset: int) -> None:
        """Note the offset of a delivery. One that isn't larger than those before makes no sense, and is ignored."""
        if not self._last_noted < offset <= LARGEST:
            return
        self._last_noted = offset
        if self._reached is None:  # the first one: a later session has to begin with it, whatever becomes of this one
            self._reached = offset - 1
        if self._runs:
            first, last, of_first = self._runs[-1]
            if tag == last + 1 and offset - of_first == tag - first:
                self._runs[-1] = first, tag, of_first
                return
        self._runs.append((tag, tag, offset))

    def up_to(self, tag: int) -> int | None:
        """The largest offset of the deliveries up to this tag, or the one before the first; None before any has come.
        The tag never falls."""
        while self._runs and (run := self._runs[0])[0] <= tag:
            first, last, of_first = run
            self._reached = of_first + min(tag, last) - first
            if tag < last:
                break
            self._runs.popleft()
        return self._reached
