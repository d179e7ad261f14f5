"""Which message makes the downstream close a connection: a link is watched more closely each time it happens.

A broker that can't read a message closes the connection that it came by, and all links that share it begin anew. Which
of their messages it was, it doesn't say. So each link that had one on the way gets a connection of its own, and all of
every message is checked before it goes on. Where a link loses even that connection, its messages go on one by one, and
the one that was alone on the way is remembered.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Final

WATCHED: Final = 900.0  # longer than anything that is held takes to come again
ONE_BY_ONE: Final = 300.0
ONE_BY_ONE_AFTER_A_FIND: Final = 15.0  # where one is, there may be more
MOST_CULPRITS: Final = 256


class Watch(Enum):
    """How closely a session of a link looks at its messages."""

    OFF = auto()
    EXACT = auto()  # each is checked, and the link shares no connection
    ONE_BY_ONE = auto()  # besides, only one is on the way at a time


class Suspicion:
    """Of one link, kept from one session to the next. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._exact_until = 0.0
        self._single_until = 0.0
        self._culprits: dict[bytes, float] = {}  # digest -> until when it is believed

    def watch(self, now: float) -> Watch:
        if now >= self._exact_until:
            return Watch.OFF
        return Watch.ONE_BY_ONE if now < self._single_until else Watch.EXACT

    def culprits(self, now: float) -> int:
        """How many messages are held because they close the connection."""
        self._culprits = {digest: until for digest, until in self._culprits.items() if now < until}
        return len(self._culprits)

    def is_culprit(self, digest: bytes, now: float) -> bool:
        """Whether the message closed the connection lately; it is tried again some time, since brokers are updated."""
        return now < self._culprits.get(digest, 0.0)

    def caught(self, now: float) -> None:
        """A message was held that would have closed the connection: it may come again, and others like it."""
        self._exact_until = max(self._exact_until, now + WATCHED)

    def broke(self, now: float, watch: Watch, on_the_way: Collection[bytes]) -> None:
        """The connection was closed over a message of a link that had some on the way.

        `watch` is how its session looked at them, `on_the_way` the digests of those that it knows.
        """
        self._exact_until = now + WATCHED
        if watch is Watch.OFF:
            return
        self._single_until = now + ONE_BY_ONE
        if watch is Watch.ONE_BY_ONE and len(on_the_way) == 1:
            self._single_until = now + ONE_BY_ONE_AFTER_A_FIND
            self._remember(*on_the_way, until=now + WATCHED)

    def _remember(self, digest: bytes, *, until: float) -> None:
        if len(self._culprits) >= MOST_CULPRITS:
            del self._culprits[min(self._culprits, key=self._culprits.__getitem__)]
        self._culprits[digest] = until
