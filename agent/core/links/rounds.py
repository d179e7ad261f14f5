"""The bindings to assert next: a bounded number per second, however many there are.

Why: docs/decisions/0034-canary.md
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Final, Generic, TypeVar

WITHIN: Final = 600.0  # seconds for all of them
PER_SECOND: Final = 1.0  # at most, so very many take longer

Member = TypeVar("Member")


class Rounds(Generic[Member]):
    """Serves members in turn, each for the number of its bindings, `size`, before the next one."""

    def __init__(self, size: Callable[[Member], int]) -> None:
        self._size = size
        self._members: deque[Member] = deque()
        self._given = 0  # to the first of them, in its turn
        self._credit = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def add(self, member: Member) -> None:
        self._members.append(member)

    def remove(self, member: Member) -> None:
        if self._members[0] == member:
            self._given = 0
        self._members.remove(member)

    def due(self, seconds: float) -> list[tuple[Member, int]]:
        """The members whose bindings are due, `seconds` after the last call, each with a number of bindings."""
        total = sum(map(self._size, self._members))
        self._credit = min(self._credit + seconds * min(PER_SECOND, total / WITHIN), seconds * PER_SECOND + 1)
        found: list[tuple[Member, int]] = []
        for _ in range(len(self._members)):
            member = self._members[0]
            count = max(0, min(int(self._credit), self._size(member) - self._given))
            if count:
                found.append((member, count))
            self._credit -= count
            self._given += count
            if self._given < self._size(member):
                break
            self._members.rotate(-1)
            self._given = 0
        return found


class Once:
    """Shares out what is to be done once for each member, within some seconds or at a bounded rate."""

    def __init__(self, *, within: float, per_second: float) -> None:
        self._within = within
        self._per_second = per_second
        self._most = 0  # that there was to do, since there was nothing

    def due(self, left: Iterable[tuple[Member, int]], seconds: float) -> list[tuple[Member, int]]:
        """The members that are due, `seconds` after the last call, each with a number; `left` are the numbers that
        remain to be done."""
        left = [(member, count) for member, count in left if count]
        total = sum(count for _, count in left)
        self._most = max(self._most, total) if total else 0
        room = ceil(seconds * min(self._per_second, self._most / self._within))
        found: list[tuple[Member, int]] = []
        for member, count in left:
            if not room:
                break
            found.append((member, min(count, room)))
            room -= found[-1][1]
        return found
