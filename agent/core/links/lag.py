"""The lag of one link: the messages that wait upstream, and the time in which nothing has been confirmed."""

from __future__ import annotations

from typing import Final

MOVING: Final = 5.0
QUIET: Final = 600.0  # if nothing is delivered nothing waits: a consumer with room would have received it


class Lag:
    """The lag of one session. A quiet link's queue is read rarely, because a thousand of them must cost almost
    nothing."""

    __slots__ = ("_confirmed", "_is_known", "_looked_at", "_moves", "_rest", "_waits_since", "is_held", "ready")

    def __init__(self, now: float, *, confirmed: int, chance: float) -> None:
        """`chance`, from 0 to 1, spreads the reads of links that started together."""
        self.ready: int | None = None  # messages in the upstream queue when last read
        self.is_held = False  # nothing is read from the source, so what it has sent can't be counted here
        self._confirmed = confirmed
        self._is_known = False
        self._waits_since: float | None = None
        self._moves = True
        self._looked_at = now - MOVING * (1 - chance)
        self._rest = QUIET * chance

    def observe(self, now: float, *, confirmed: int, unsettled: int) -> float:
        """Update the lag; returns the seconds for which messages have waited and none was confirmed."""
        moved = confirmed != self._confirmed
        self._confirmed = confirmed
        if moved:
            self._is_known = False  # ready messages may have been forwarded by now
        waits = unsettled > 0 or (self._is_known and bool(self.ready))
        self._moves = self._moves or moved or waits
        if not waits:
            self._waits_since = None
        elif moved or self._waits_since is None:
            self._waits_since = now
        return 0.0 if self._waits_since is None else now - self._waits_since

    def behind(self, unsettled: int, *, prefetch: int) -> int | None:
        """The number of messages that wait at the source and here; None if unknown. If some are ready there although
        nothing is read, the consumer has as many as its prefetch allows. If none are, it may have up to that many;
        these aren't counted."""
        if self.ready is None:
            return None
        return self.ready + (max(unsettled, prefetch) if self.is_held and self.ready else unsettled)

    def forgive(self) -> None:
        """Start the lag again: nothing could be confirmed until now, and that doesn't count."""
        self._waits_since = None

    def may_have_grown(self) -> None:
        """Note that nothing is taken from the queue for now, so messages may wait without anything moving here."""
        self._moves = True

    @property
    def due_at(self) -> float:
        """The time at which to read the queue's depth again."""
        return self._looked_at + (MOVING if self._moves else self._rest)

    def counted(self, ready: int) -> None:
        """Note that this many messages are ready upstream."""
        self.ready = ready
        self._is_known = True

    def asks(self, now: float) -> None:
        """Note that the depth is being read now."""
        if not self._moves:
            self._rest = QUIET
        self._looked_at = now
        self._moves = False
