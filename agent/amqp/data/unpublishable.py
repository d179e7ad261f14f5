"""Messages that can't be published downstream: returned at once, they would come again at once, forever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent.core.links.refusals import SPARINGLY
from agent.core.rules.quarantine import QuarantineReason

Later = Callable[[float, Callable[[], None]], object]

TOO_LARGE: Final = QuarantineReason.TOO_LARGE
TOO_MANY_HEADERS: Final = QuarantineReason.HEADERS_TOO_LARGE
UNREADABLE: Final = QuarantineReason.UNREADABLE
CLOSES: Final = QuarantineReason.CLOSES
RETURNED: Final = QuarantineReason.RETURNED
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
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
        returns_are_counted: bool,
    ) -> None:
        self._later = later
        self._give_back = give_back
        self._clock = clock
        self._pause = SPARINGLY if returns_are_counted else FIRST_PAUSE
        self._tags: list[int] = []
        self._waiting: dict[str, tuple[int, int]] = {}  # by reason: how many, and the largest one's size
        self._before: dict[str, tuple[int, int]] = {}  # what was given back last
        self._returned_at = 0.0

    def add(self, tag: int, reason: str, size: int) -> None:
        count, largest = self._waiting.get(reason, (0, 0))
        self._waiting[reason] = count + 1, max(largest, size)
        if not self._tags:
            self._later(self._pause, self._return)
        self._tags.append(tag)

    @property
    def count(self) -> int:
        """The number of messages that are held."""
        return len(self._tags)

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

    def _return(self) -> None:
        tags, self._tags = self._tags, []
        self._pause = max(self._pause, min(2 * self._pause, LONGEST_PAUSE))
        self._before, self._waiting, self._returned_at = self._waiting, {}, self._clock()
        self._give_back(tags)


def _sizes(largest: int, limit: int | None) -> str:
    if not largest:
        return ""
    return f" (up to {largest} bytes)" if not limit else f" (up to {largest} bytes, where {limit} fit)"
