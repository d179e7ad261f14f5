"""Finds the message that makes the downstream close a connection: a link's messages are checked more closely each time.

A broker that can't parse a message closes the connection it came by, and all links that share it reconnect. The broker
doesn't say which message it was. So each link that had messages in flight gets its own connection, and every message is
checked completely before it is published. If a link loses even that connection, its messages are published one by one,
and the one that was in flight alone is remembered.

Why: docs/decisions/0014-poison-search.md
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Final

WATCHED: Final = 900.0  # longer than the interval after which held messages are redelivered
ONE_BY_ONE: Final = 300.0
ONE_BY_ONE_AFTER_A_FIND: Final = 15.0  # if there is one, there may be more
MOST_CULPRITS: Final = 256


class Watch(Enum):
    """The checks that a session of a link makes on its messages, from none to the closest."""

    OFF = auto()
    EXACT = auto()  # each is checked, and the link shares no connection
    ONE_BY_ONE = auto()  # also, only one is in flight at a time


class PoisonSearch:
    """The search of one link, kept from one session to the next. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._exact_until = 0.0
        self._single_until = 0.0
        self._culprits: dict[bytes, float] = {}  # digest -> until when it is held

    def watch(self, now: float) -> Watch:
        if now >= self._exact_until:
            return Watch.OFF
        return Watch.ONE_BY_ONE if now < self._single_until else Watch.EXACT

    def culprits(self, now: float) -> int:
        """The number of messages that are held because they close the connection."""
        self._culprits = {digest: until for digest, until in self._culprits.items() if now < until}
        return len(self._culprits)

    def is_culprit(self, digest: bytes, now: float) -> bool:
        """True if the message closed the connection recently; later it is tried again, since brokers are updated."""
        return now < self._culprits.get(digest, 0.0)

    def caught(self, now: float) -> None:
        """Note that a message was held that would have closed the connection: it may be redelivered, and there may be
        others like it."""
        self._exact_until = max(self._exact_until, now + WATCHED)

    def broke(self, now: float, watch: Watch, on_the_way: Collection[bytes]) -> None:
        """Note that the connection was closed over a message while the link had some in flight. `watch` is how its
        session checked them, `on_the_way` the known digests."""
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
