"""How far one link is behind: what waits upstream, and for how long nothing has been confirmed."""

from __future__ import annotations

from typing import Final

MOVING: Final = 5.0
QUIET: Final = 600.0  # where nothing moves nothing waits: a consumer with room would have been sent it


class Lag:
    """Of one session. A quiet link is looked at rarely, because a thousand of them may cost next to nothing."""

    __slots__ = ("_confirmed", "_is_known", "_looked_at", "_moves", "_rest", "_waits_since", "ready")

    def __init__(self, now: float, *, confirmed: int, chance: float) -> None:
        """`chance`, from 0 to 1, spreads the looks of links that began together."""
        self.ready: int | None = None  # messages that the upstream queue had when last looked at
        self._confirmed = confirmed
        self._is_known = False
        self._waits_since: float | None = None
        self._moves = True
        self._looked_at = now - MOVING * (1 - chance)
        self._rest = QUIET * chance

    def observe(self, now: float, *, confirmed: int, unsettled: int) -> float:
        """For how many seconds something has waited and nothing was confirmed."""
        moved = confirmed != self._confirmed
        self._confirmed = confirmed
        if moved:
            self._is_known = False  # what was ready may be through by now
        waits = unsettled > 0 or (self._is_known and bool(self.ready))
        self._moves = self._moves or moved or waits
        if not waits:
            self._waits_since = None
        elif moved or self._waits_since is None:
            self._waits_since = now
        return 0.0 if self._waits_since is None else now - self._waits_since

    def forgive(self) -> None:
        """Nothing could be confirmed up to now, and that is no lag of the link's own."""
        self._waits_since = None

    @property
    def due_at(self) -> float:
        """When to look at the queue again, as things stand."""
        return self._looked_at + (MOVING if self._moves else self._rest)

    def told(self, ready: int) -> None:
        """So many messages are ready upstream."""
        self.ready = ready
        self._is_known = True

    def asks(self, now: float) -> None:
        """Somebody looks now."""
        if not self._moves:
            self._rest = QUIET
        self._looked_at = now
        self._moves = False
