"""Changes on the board since a reader's last read: only the ids of changed links, so slow readers cost little."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids of links; the sender reads the board at that time, so it sends the latest state."""

    gone: tuple[str, ...]
    changed: tuple[str, ...]
    moved: tuple[str, ...]


@dataclass(eq=False)
class Feed:
    """The feed of one reader; never larger than the board."""

    _gone: dict[str, None] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)
    _moved: dict[str, None] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def change(self, link_id: str) -> None:
        self._changed[link_id] = None
        self._wake.set()

    def move(self, link_id: str) -> None:
        """Its counters changed; this is sent at the end of the round."""
        self._moved[link_id] = None

    def flush(self) -> None:
        """Ends a round."""
        if self._moved:
            self._wake.set()

    def lose(self, link_id: str) -> None:
        self._changed.pop(link_id, None)
        self._moved.pop(link_id, None)
        self._gone[link_id] = None
        self._wake.set()

    def end(self) -> None:
        """There are no further changes."""
        self.ended = True
        self._wake.set()

    async def wait(self) -> None:
        await self._wake.wait()

    def take(self) -> Changes:
        """Removed links come first: a link with the same id may exist again."""
        changes = Changes(tuple(self._gone), tuple(self._changed), tuple(self._moved))
        self._wake.clear()
        for pending in (self._gone, self._changed, self._moved):
            pending.clear()
        return changes
