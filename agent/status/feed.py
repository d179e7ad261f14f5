"""What changed on the board since a reader last looked: of each link only that it did, so slow readers cost little."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class News:
    """Ids of links; whoever tells them reads the board then, so that it tells the latest."""

    gone: tuple[str, ...]
    changed: tuple[str, ...]
    moved: tuple[str, ...]


@dataclass(eq=False)
class Feed:
    """One reader's; never larger than the board."""

    _gone: dict[str, None] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)
    _moved: dict[str, None] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def change(self, link_id: str) -> None:
        self._changed[link_id] = None
        self._wake.set()

    def move(self, link_id: str) -> None:
        """Its counts are others; that waits for the end of the beat."""
        self._moved[link_id] = None

    def flush(self) -> None:
        """A beat is over."""
        if self._moved:
            self._wake.set()

    def lose(self, link_id: str) -> None:
        self._changed.pop(link_id, None)
        self._moved.pop(link_id, None)
        self._gone[link_id] = None
        self._wake.set()

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        self._wake.set()

    async def wait(self) -> None:
        await self._wake.wait()

    def take(self) -> News:
        """What is gone is told first: a link of the same id may be there again."""
        news = News(tuple(self._gone), tuple(self._changed), tuple(self._moved))
        self._wake.clear()
        for pending in (self._gone, self._changed, self._moved):
            pending.clear()
        return news
