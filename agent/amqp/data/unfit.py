"""Deliveries that can't be published downstream: how many wait, why, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent.amqp.data.returns import Later, Returns
from agent.core.rules.quarantine import QuarantineReason

TOO_LARGE: Final = QuarantineReason.TOO_LARGE
TOO_MANY_HEADERS: Final = QuarantineReason.HEADERS_TOO_LARGE
UNREADABLE: Final = QuarantineReason.UNREADABLE
CLOSES: Final = QuarantineReason.CLOSES
RETURNED: Final = QuarantineReason.RETURNED
LONGEST_UNFIT: Final = 60.0
COMES_BACK_WITHIN: Final = 5.0  # what was given back is counted as waiting for so long

_NOUNS: Final[Mapping[str, str]] = {
    TOO_LARGE: "larger than it takes",
    TOO_MANY_HEADERS: "with headers larger than a frame there",
    UNREADABLE: "with properties that can't be read",
    CLOSES: "over which it closes the connection or channel",
    RETURNED: "which the source would drop if they came back more often",
}


class Unfit:
    """Gives them back upstream, less and less often: nothing but another configuration makes them fit."""

    def __init__(
        self,
        later: Later,
        give_back: Callable[[list[int]], None],
        clock: Callable[[], float],
        *,
        pause: float,
    ) -> None:
        """`pause` is for how many seconds they are held at first."""
        self._returns = Returns(later, self._return, shortest=pause, longest=max(pause, LONGEST_UNFIT))
        self._give_back = give_back
        self._clock = clock
        self._waiting: dict[str, tuple[int, int]] = {}  # by reason: how many, and the largest one's size
        self._before: dict[str, tuple[int, int]] = {}  # what was given back last
        self._returned_at = 0.0

    def add(self, tag: int, reason: str, size: int) -> None:
        count, largest = self._waiting.get(reason, (0, 0))
        self._waiting[reason] = count + 1, max(largest, size)
        self._returns.add([tag])

    @property
    def count(self) -> int:
        """How many are held."""
        return sum(count for count, _ in self._waiting.values())

    def describe(self, limits: Mapping[str, int]) -> str:
        """In an operator's words; empty where there are none. `limits` are bytes, by reason, 0 where unknown."""
        found = self._shown
        total = sum(count for count, _ in found.values())
        if not total:
            return ""
        parts = [
            f"{count} {_NOUNS.get(reason, reason)}{_sizes(largest, limits.get(reason))}"
            for reason, (count, largest) in sorted(found.items())
        ]
        messages = "1 message" if total == 1 else f"{total} messages"
        return f"{messages} can't be published downstream: {', '.join(parts)}"

    @property
    def _shown(self) -> dict[str, tuple[int, int]]:
        """What is on its way back counts until it has come again."""
        if self._clock() - self._returned_at > COMES_BACK_WITHIN:
            return self._waiting
        reasons = self._before.keys() | self._waiting.keys()
        return {reason: max(self._before.get(reason, (0, 0)), self._waiting.get(reason, (0, 0))) for reason in reasons}

    def _return(self, tags: list[int]) -> None:
        self._before, self._waiting, self._returned_at = self._waiting, {}, self._clock()
        self._give_back(tags)


def _sizes(largest: int, limit: int | None) -> str:
    if not largest:
        return ""
    return f" (up to {largest} bytes)" if not limit else f" (up to {largest} bytes, where {limit} fit)"
