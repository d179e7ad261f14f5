"""How many messages a link forwards in a second: the one definition for page, commands and API."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 10.0  # seconds that a rate is an average of
_LEAST: Final = 1.0  # of them, for a link that is new
_ROUND: Final = 2.0  # a link that moves is looked at within this time


class Pace:
    """The totals of the last seconds. A link that stands still has none of them, and needs no look."""

    __slots__ = ("_points",)

    def __init__(self, at: float, total: int) -> None:
        self._points = [(at, total)]

    def note(self, at: float, total: int) -> None:
        """A total that shrank, or a clock that was set back, begins anew."""
        last_at, last = self._points[-1]
        if total < last or at < last_at:
            self._points = [(at, total)]
            return
        self._points.append((at, total))
        while self._points[1][0] <= at - WINDOW:
            del self._points[0]

    def rate(self, at: float, total: int) -> float:
        begin = at - WINDOW
        first_at, first = self._points[0]
        for point_at, point in self._points:
            if point_at > begin:
                break
            first_at, first = point_at, point
        # Where there was no look just before, nothing had moved since the one that is older.
        span = WINDOW if first_at <= begin - _ROUND else max(_LEAST, at - first_at)
        return max(0, total - first) / span
