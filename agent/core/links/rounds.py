"""Which bindings are asserted next: a bounded number per second, however many there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

WITHIN: Final = 600.0  # seconds for all of them, if nothing else is said
PER_SECOND: Final = 1.0  # at most, so very many take longer

Member = TypeVar("Member")


class Rounds(Generic[Member]):
    """Serves members in turn, each for the number of its bindings, `size`, before the next one."""

    def __init__(
        self, size: Callable[[Member], int], *, within: float = WITHIN, per_second: float = PER_SECOND
    ) -> None:
        self._size = size
        self._within = within
        self._per_second = per_second
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
        """How many bindings of which members, `seconds` after the last call."""
        total = sum(map(self._size, self._members))
        rate = min(self._per_second, total / self._within)
        self._credit = min(self._credit + seconds * rate, seconds * self._per_second + 1)
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
