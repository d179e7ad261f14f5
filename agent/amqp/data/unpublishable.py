"""Gives messages that cannot be published back upstream later: returned at once, they would come again at once,
forever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from agent.core.rules.quarantine import QuarantineReason

SHORTEST: Final = 0.1
LONGEST: Final = 5.0
SPARINGLY: Final = 600.0  # where each return is counted, and the broker drops what came back too often

Later = Callable[[float, Callable[[], None]], object]


class Returns:
    """Gives messages back after a delay, which doubles each time; it starts again at the shortest if more messages were
    taken meanwhile than go back."""

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
        """The number of messages that wait."""
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


class Unpublishable:
    """Gives messages that can't be published back upstream, less and less often: only another configuration makes them
    fit."""

    def __init__(
        self,
        later: Later,
        give_back: Callable[[list[int]], None],
        clock: Callable[[], float],
        *,
        pause: float,
    ) -> None:
        """`pause` is the number of seconds that messages are held at first."""
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
        """The number of messages that are held."""
        return sum(count for count, _ in self._waiting.values())

    def describe(self, limits: Mapping[str, int]) -> str:
        """Describe the messages in an operator's words; empty if there are none. `limits` are bytes, by reason, 0 if
        unknown."""
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
        """The messages to show, by reason: those on their way back count until they have had time to come again."""
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
