"""What operators asked of links that other replicas run: one of those may be gone without that being known yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.core.links.lifecycle import Pause

KEPT_FOR: Final = 10.0
"""Seconds; links of a replica that is gone run elsewhere before. Later it may have been taken back elsewhere."""
UNTOLD_FOR: Final = 3.0
"""Seconds in which an agent that has just started finds the others."""
MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Request:
    action: str
    pause: Pause | None
    at: float


class Requests:
    """The last one of each link. `clock` is the loop's."""

    def __init__(self, clock: Callable[[], float], *, kept_for: float = KEPT_FOR) -> None:
        self._clock = clock
        self._kept_for = kept_for
        self._kept: dict[str, Request] = {}  # the oldest first

    def keep(self, link_id: str, action: str, pause: Pause | None) -> None:
        self._kept.pop(link_id, None)
        self._expire()
        if len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[link_id] = Request(action, pause, self._clock())

    def take(self, link_id: str) -> Request | None:
        """What was asked lately, once."""
        self._expire()
        return self._kept.pop(link_id, None)

    def clear(self) -> None:
        self._kept.clear()

    def _expire(self) -> None:
        """In the order in which they came: usually there is nothing to do."""
        until = self._clock() - self._kept_for
        while self._kept and self._kept[oldest := next(iter(self._kept))].at <= until:
            del self._kept[oldest]
