"""How many links stand still, and which side is the cause, for `/metrics`: what `/api/causes` says in words."""

from __future__ import annotations

from collections import Counter
from typing import Final

from agent.core.status.causes import blamed, stands_still
from agent.status.board import Board, Entry
from agent.status.causes import facts
from agent.status.families import PREFIX, Family, Type, labelled

STUCK: Final = Family(
    f"{PREFIX}stuck_links",
    Type.GAUGE,
    "Links that are down, blocked or stalled, by the side that is the cause; no value where there are none.",
    labels=("side", "trouble", "vhost", "upstream"),
)


class StuckLinks:
    """Counts of them. An upstream is known by its name here: labels hold no addresses."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, entry: Entry, now: float) -> None:
        if stands_still(entry.state.status):
            side, trouble = blamed(facts(self._board, entry, now))
            self._counts[side, trouble, entry.link.vhost, entry.link.upstream] += 1

    def add_deleted(self) -> None:
        for link in self._board.deleted():
            side, trouble = blamed(link)
            self._counts[side, trouble, link.vhost, link.upstream] += 1

    def lines(self) -> bytes:
        told = ((labelled(dict(zip(STUCK.labels, key, strict=True))), count) for key, count in self._counts.items())
        return "".join(f"{STUCK.name}{{{labels}}} {count}\n" for labels, count in told).encode(errors="replace")
