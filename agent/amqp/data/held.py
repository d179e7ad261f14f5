"""What was written and is not confirmed yet: references to the buffers, so that nothing is copied.

For whoever has to publish a message again, or elsewhere, without returning it to its source first.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from agent.amqp.wire import frames


class _Batch(NamedTuple):
    """The publishes up to `last` since the batch before; without buffers where they were given up."""

    last: int
    buffers: tuple[bytes, ...]
    size: int


class HeldBuffers:
    """Holds `limit` bytes at most: beyond that the oldest are given up, and have to come from their source again."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._batches: deque[_Batch] = deque()
        self._written: list[bytes] = []  # and of no batch yet
        self._settled = 0  # the last publish before the first batch

    def written(self, data: bytes) -> None:
        self._written.append(data)
        self.size += len(data)
        while self.size > self._limit and self._batches:
            self._give_up()
        if self.size > self._limit:
            self.size, self._written = 0, []

    def published(self, last: int) -> None:
        """What was written since this was called last has all publishes up to this number."""
        self._batches.append(_Batch(last, tuple(self._written), sum(map(len, self._written))))
        self._written = []

    def settled(self, oldest: int) -> None:
        """All publishes before this number are settled."""
        while self._batches and self._batches[0].last < oldest:
            self._give_up()

    def message(self, number: int) -> bytes | None:
        """The frames of one publish; None where they are not held, or not whole, as of what is larger than `WHOLE`."""
        first = self._settled + 1
        for batch in self._batches:
            if first <= number <= batch.last:
                return _message(b"".join(batch.buffers), batch.last - first + 1, number - first)
            first = batch.last + 1
        return None

    def _give_up(self) -> None:
        batch = self._batches.popleft()
        self._settled = batch.last
        self.size -= batch.size


def _message(data: bytes, count: int, place: int) -> bytes | None:
    """One of `count` messages; the last ones that begin here may be no part of them."""
    begins, at = [], 0
    while at < len(data):
        kind, _, size = frames.PREFIX.unpack_from(data, at)
        if kind == frames.METHOD:
            begins.append(at)
        at += frames.OVERHEAD + size
    if not begins or begins[0] > 0:  # the first one began in an earlier buffer
        begins.insert(0, -1)
    if place >= len(begins) or begins[place] < 0 or count > len(begins):
        return None
    begins.append(len(data))
    return data[begins[place] : begins[place + 1]]
