"""Samples in little memory: packed into a ring of bytes that grows until it is full."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_PACKED: Final = struct.Struct("<dQIf")
_UNKNOWN: Final = 0  # less than any backlog, to which one is added
_MOST: Final = 2**32 - 1


class Ring:
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
        """Oldest first."""
        return (self._packed.unpack_from(self._bytes, self._place(number)) for number in range(len(self)))

    def __reversed__(self) -> Iterator[tuple[Any, ...]]:
        count = len(self)
        return (self._packed.unpack_from(self._bytes, self._place(-number)) for number in range(1, count + 1))

    def _place(self, number: int) -> int:
        return (self._first + number) % len(self) * self._packed.size


class Step(NamedTuple):
    """The last total of a step, and the most that waited in it."""

    at: float
    forwarded: int
    backlog: int | None
    oldest_unconfirmed_seconds: float


class Tier:
    """One sample for each step of so many `seconds`: the last `size` of them, 24 bytes each."""

    __slots__ = ("_ring", "_seconds")

    def __init__(self, seconds: float, size: int) -> None:
        self._seconds = seconds
        self._ring = Ring(_PACKED, size)

    def put(self, step: Step) -> None:
        at, forwarded, backlog, oldest = step
        waiting = _UNKNOWN if backlog is None else min(backlog + 1, _MOST)
        last = self._ring.last()
        if last is not None and last[0] // self._seconds == at // self._seconds:
            self._ring.replace_last(at, forwarded, max(waiting, last[2]), max(oldest, last[3]))
        else:
            self._ring.append(at, forwarded, waiting, oldest)

    def __iter__(self) -> Iterator[Step]:
        """Oldest first."""
        return (_unpacked(values) for values in self._ring)


def _unpacked(values: tuple[Any, ...]) -> Step:
    at, forwarded, waiting, oldest = values
    return Step(at, forwarded, None if waiting == _UNKNOWN else waiting - 1, round(oldest, 3))
