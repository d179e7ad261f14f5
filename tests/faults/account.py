"""What became of every message: published with a confirm, delivered, missing, duplicated, out of order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Account:
    """Times are in seconds of one clock. What a publisher sends again, because it got no confirm, may come as often."""

    attempts: Counter[int] = field(default_factory=Counter)
    confirmed: dict[int, float] = field(default_factory=dict)  # when
    delivered: list[tuple[float, int]] = field(default_factory=list)

    @property
    def missing(self) -> list[int]:
        came = {number for _, number in self.delivered}
        return sorted(self.confirmed.keys() - came)

    @property
    def duplicated(self) -> int:
        times = Counter(number for _, number in self.delivered)
        return sum(max(0, count - self.attempts[number]) for number, count in times.items())

    def out_of_order(self, since: float, before: float, after: float) -> int:
        """Among those that were published since a time and came before the fault, and among those that were published
        after its end."""
        early = [number for at, number in self._first() if self.confirmed.get(number, 0.0) > since and at < before]
        late = [number for _, number in self._first() if self.confirmed.get(number, 0.0) > after]
        return _inversions(early) + _inversions(late)

    def first_after(self, moment: float) -> float | None:
        """When the first message arrived that was published after this moment."""
        return next((at for at, number in self.delivered if self.confirmed.get(number, 0.0) > moment), None)

    def _first(self) -> list[tuple[float, int]]:
        seen: dict[int, float] = {}
        for at, number in self.delivered:
            seen.setdefault(number, at)
        return [(at, number) for number, at in seen.items() if self.attempts[number] == 1]


def _inversions(numbers: list[int]) -> int:
    """How many came after one with a higher number."""
    highest, found = -1, 0
    for number in numbers:
        found += number < highest
        highest = max(highest, number)
    return found
