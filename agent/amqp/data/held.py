"""Holds what was written until it is confirmed: references to the buffers, so that nothing is copied.

A message can then be published again, or elsewhere, without returning it to its source first.

Why: docs/decisions/0012-keep-until-confirmed.md
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.amqp.data.prepared import ADDRESS, PUBLISH, TABLES
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Delivery, read_address
from agent.amqp.wire import frames
from agent.amqp.wire.properties import HEADERS, Properties


class Received(NamedTuple):
    """The properties as received, with their flags, of a message that is published with others."""

    properties: bytes


class Publish(NamedTuple):
    """The frames of one publish, what was prepared for its address, and what was put in front of its headers."""

    frames: bytes
    prepared: tuple[bytes, ...]
    added: bytes | Received

    @property
    def delivery(self) -> Delivery:
        return read_address(self.prepared[ADDRESS], redelivered=False)

    @property
    def properties(self) -> bytes:
        """The properties as they were received, with their flags."""
        if isinstance(self.added, Received):
            return self.added.properties
        written = self._payloads[1][frames.BASIC_HEADER.size :]
        if not self.added:
            return written
        found = Properties.read(written)
        if any(self.added is table for table in self.prepared[TABLES]):
            return found.lacking(HEADERS).write()
        entries = found.raw_headers[4 + len(self.added) :]
        return found.with_raw_headers(len(entries).to_bytes(4, "big") + entries).write()

    @property
    def body(self) -> bytes:
        return b"".join(self._payloads[2:])

    @property
    def _payloads(self) -> list[bytes]:
        return [self.frames[at + frames.PREFIX.size : after - 1] for _, at, after in _walk(self.frames)]


class Ways(NamedTuple):
    """For each message: the bytes prepared for its address, and those put in front of its headers."""

    prepared: Sequence[tuple[bytes, ...]]
    added: Sequence[bytes | Received]


NO_WAYS: Final = Ways((), ())


@dataclass(slots=True)
class _Batch:
    """The publishes after the batch before, up to `last`, with `octets` bytes; without buffers once they were given
    up."""

    last: int
    buffers: list[bytes]
    ways: Ways
    size: int  # in memory
    octets: int
    is_split: bool = False  # a buffer for each message
    destinations: Sequence[bytes] = ()  # the frame of each publish, where no more is kept


class HeldBuffers:
    """Holds at most `limit` bytes, and no more than `room` has: beyond that the oldest are given up, and have to come
    from their source again. The destination of these stays known until they are confirmed."""

    __slots__ = (
        "_bare", "_batches", "_is_torn", "_octets", "_of_written", "_settled", "_written", "limit", "room", "size",
    )  # fmt: skip

    def __init__(self, limit: int, room: Room) -> None:
        self.size = 0
        self.room = room
        self.limit = limit
        self._bare: list[_Batch] = []  # given up; all of them before the others
        self._batches: list[_Batch] = []
        self._written: list[bytes] = []  # and of no batch yet
        self._of_written = 0  # bytes
        self._octets = 0  # of these, also where not all of it is held
        self._is_torn = False  # a part of what was written is not held
        self._settled = 0  # the last publish before the first batch that is bare, or held

    def written(self, data: bytes) -> None:
        self._octets += len(data)
        if self._is_torn or not self._takes(len(data)):
            return
        self._written.append(data)
        self._of_written += len(data)

    def published(self, last: int, ways: Ways, *, rewritten: int = 0) -> None:
        """End a batch: what was written since the last call has all publishes up to `last`. Of what is in `ways`,
        `rewritten` bytes are held nowhere else."""
        if not self._is_torn and rewritten and self._takes(rewritten):
            self._of_written += rewritten
        if self._is_torn:
            self._batches.append(_bare(last, ways, self._octets))
        else:
            self._batches.append(_Batch(last, self._written, ways, self._of_written, self._octets))
        self._written, self._of_written, self._octets, self._is_torn = [], 0, 0, False

    def settled(self, oldest: int) -> None:
        """Forget all publishes before this number: they are settled."""
        for batches in (self._bare, self._batches):
            settled = 0
            for batch in batches:
                if batch.last >= oldest:
                    break
                self._settled = batch.last
                self._free(batch.size)
                settled += 1
            del batches[:settled]

    def moved_out(self, number: int) -> Publish | None:
        """The publish with this number, which takes no room here from now on; None if it is not held."""
        publish, found = self.copy(number), self._find(number)
        if publish is None or found is None:
            return None
        batch, place = found
        batch.buffers[place] = b""
        batch.size -= len(publish.frames)
        self._free(len(publish.frames))
        return publish

    def copy(self, number: int) -> Publish | None:
        """The publish with this number, which stays here; None if it is not held."""
        found = self._find(number)
        if found is None or not found[0].buffers or not found[0].ways.prepared:
            return None
        batch, place = found
        if not batch.is_split:
            batch.buffers, batch.is_split = _messages(b"".join(batch.buffers)), True
        data = batch.buffers[place]
        return Publish(data, batch.ways.prepared[place], batch.ways.added[place]) if data else None  # moved out before

    def known(self, number: int) -> tuple[bytes, int] | None:
        """The facts of a publish that stay known when it is no longer held: the frame with its destination, and about
        its size. None if it was published again, or is settled."""
        found = self._find(number)
        if found is None or not (found[0].ways.prepared or found[0].destinations):
            return None
        batch, place = found
        if batch.destinations:
            return batch.destinations[place], batch.octets // len(batch.destinations)
        return batch.ways.prepared[place][PUBLISH], batch.octets // len(batch.ways.prepared)

    def release(self) -> None:
        """Forget everything that is held."""
        self._give_up(len(self._batches))
        if self._bare:
            self._settled = self._bare[-1].last
            self._bare.clear()
        self._tear()

    def _find(self, number: int) -> tuple[_Batch, int] | None:
        if self._bare and number <= self._bare[-1].last:
            return _find(self._bare, number, after=self._settled)
        return _find(self._batches, number, after=self._bare[-1].last if self._bare else self._settled)

    def _takes(self, size: int) -> bool:
        while self.size + size > self.limit or not self.room.take(size):
            if not self._batches:
                self._tear()
                return False
            self._give_up(1 + len(self._batches) // 64)  # of very many some at once, since each time moves the rest
        self.size += size
        return True

    def _tear(self) -> None:
        self._free(self._of_written)
        self._written, self._of_written, self._is_torn = [], 0, True

    def _give_up(self, count: int) -> None:
        """Give up the oldest batches."""
        for batch in self._batches[:count]:
            self._free(batch.size)
            self._bare.append(_bare(batch.last, batch.ways, batch.octets, batch.destinations))
        del self._batches[:count]

    def _free(self, size: int) -> None:
        self.size -= size
        self.room.give_back(size)


def _bare(last: int, ways: Ways, octets: int, destinations: Sequence[bytes] = ()) -> _Batch:
    """A batch of whose messages only the destinations are kept: entries of headers may be longer than all else."""
    kept = destinations or [prepared[PUBLISH] for prepared in ways.prepared]
    return _Batch(last, [], NO_WAYS, 0, octets, destinations=kept)


def _find(batches: list[_Batch], number: int, *, after: int) -> tuple[_Batch, int] | None:
    """The batch of a publish and its place there; None if no batch has it. The batches begin after the publish
    `after`."""
    at = bisect_left(batches, number, key=lambda batch: batch.last)  # thousands may be refused one by one
    first = (batches[at - 1].last if at else after) + 1
    return (batches[at], number - first) if at < len(batches) and number >= first else None


def _messages(data: bytes) -> list[bytes]:
    begins = [at for kind, at, _ in _walk(data) if kind == frames.METHOD]
    return [data[begin:end] for begin, end in zip(begins, [*begins[1:], len(data)], strict=True)]


def _walk(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The kind of each frame, where it begins, and where it ends."""
    at = 0
    while at < len(data):
        kind, _, size = frames.PREFIX.unpack_from(data, at)
        after = at + frames.OVERHEAD + size
        yield kind, at, after
        at = after
