"""Deliveries on their way back upstream, after a while: given back at once, they would come again at once, forever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

SHORTEST: Final = 0.1
LONGEST: Final = 5.0
SPARINGLY: Final = 600.0  # where each return is counted, and the broker drops what came back too often

Later = Callable[[float, Callable[[], None]], object]


class Returns:
    """Waits twice as long each time, unless more was taken meanwhile than goes back; then it begins anew."""

    def __init__(
        self,
        later: Later,
        give_back: Callable[[list[int]], None],
        *,
        shortest: float = SHORTEST,
        longest: float = LONGEST,
    ) -> None:
        self.taken = 0  # since the last return
        self._later = later
        self._give_back = give_back
        self._shortest = self._delay = shortest
        self._longest = longest
        self._tags: list[int] = []

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._tags)

    def add(self, tags: Iterable[int]) -> None:
        waits = bool(self._tags)
        self._tags += tags
        if self._tags and not waits:
            self._later(self._delay, self._return)

    def _return(self) -> None:
        tags, self._tags = self._tags, []
        longer = min(2 * self._delay, self._longest)
        self._delay = longer if len(tags) >= self.taken else self._shortest
        self.taken = 0
        self._give_back(tags)
