"""What was written and is not confirmed yet: references to the buffers, so that nothing is copied.

For whoever has to publish a message again, or elsewhere, without returning it to its source first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.amqp.data.capture import Room
from agent.amqp.wire import frames


class Received(NamedTuple):
    """The properties as they came, with their flags, of a message that is published with others."""

    properties: bytes


class Publish(NamedTuple):
    """The frames of one publish, what was prepared for its address, and what was put in front of its headers."""

    frames: bytes
    prepared: tuple[bytes, ...]
    added: bytes | Received


class Ways(NamedTuple):
    """Of each message what was prepared for its address, and what was added."""

    prepared: Sequence[tuple[bytes, ...]]
    added: Sequence[bytes | Received]


NO_WAYS: Final = Ways((), ())


@dataclass(slots=True)
class _Batch:
    """The publishes up to `last` since the batch before; without buffers where they were given up."""

    last: int
    buffers: Sequence[bytes]
    ways: Ways
    size: int
    is_split: bool = False  # a buffer for each message


class HeldBuffers:
    """Holds `limit` bytes at most, and no more than `room` has: beyond that the oldest are given up, and have to come
    from their source again."""

    def __init__(self, limit: int, room: Room) -> None:
        self.size = 0
        self.room = room
        self.limit = limit
        self._batches: deque[_Batch] = deque()
        self._written: list[bytes] = []  # and of no batch yet
        self._of_written = 0  # bytes
        self._is_torn = False  # a part of what was written is not held
        self._settled = 0  # the last publish before the first batch

    def written(self, data: bytes) -> None:
        if self._is_torn or not self._takes(len(data)):
            return
        self._written.append(data)
        self._of_written += len(data)

    def published(self, last: int, ways: Ways, *, rewritten: int = 0) -> None:
        """What was written since this was called last has all publishes up to this number; of what is in `ways`, so
        many bytes are in no other place."""
        if not self._is_torn and rewritten and self._takes(rewritten):
            self._of_written += rewritten
        if self._is_torn:
            self._batches.append(_Batch(last, (), NO_WAYS, 0))
        else:
            self._batches.append(_Batch(last, self._written, ways, self._of_written))
        self._written, self._of_written, self._is_torn = [], 0, False

    def settled(self, oldest: int) -> None:
        """All publishes before this number are settled."""
        while self._batches and self._batches[0].last < oldest:
            self._give_up()

    def message(self, number: int) -> Publish | None:
        """One publish; None where it is not held."""
        batches = self._batches
        at = bisect_left(batches, number, key=lambda batch: batch.last)  # thousands may be refused one by one
        first = (batches[at - 1].last if at else self._settled) + 1
        return _message(batches[at], number - first) if at < len(batches) and number >= first else None

    def release(self) -> None:
        """Nothing is held any more."""
        while self._batches:
            self._give_up()
        self._tear()

    def _takes(self, size: int) -> bool:
        while self.size + size > self.limit or not self.room.take(size):
            if not self._batches:
                self._tear()
                return False
            self._give_up()
        self.size += size
        return True

    def _tear(self) -> None:
        self._free(self._of_written)
        self._written, self._of_written, self._is_torn = [], 0, True

    def _give_up(self) -> None:
        batch = self._batches.popleft()
        self._settled = batch.last
        self._free(batch.size)

    def _free(self, size: int) -> None:
        self.size -= size
        self.room.give_back(size)


def _message(batch: _Batch, place: int) -> Publish | None:
    if not batch.ways.prepared:
        return None
    if not batch.is_split:
        batch.buffers, batch.is_split = _messages(b"".join(batch.buffers)), True
    return Publish(batch.buffers[place], batch.ways.prepared[place], batch.ways.added[place])


def _messages(data: bytes) -> list[bytes]:
    begins, at = [], 0
    while at < len(data):
        kind, _, size = frames.PREFIX.unpack_from(data, at)
        if kind == frames.METHOD:
            begins.append(at)
        at += frames.OVERHEAD + size
    return [data[begin:end] for begin, end in zip(begins, [*begins[1:], len(data)], strict=True)]
