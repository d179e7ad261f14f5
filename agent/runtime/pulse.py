"""One beat a second for what links do by the clock: a timer for each of them would cost more than all they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from agent.status.board import Board
from agent.status.slices import in_slices

EVERY: Final = 1.0


class Beating(Protocol):
    def pulse(self, now: float) -> bool:
        """Whether something moved since the last beat."""


async def beat(links: Callable[[], Iterable[tuple[str, Beating]]], board: Board) -> None:
    """Until cancelled; the board is told of each link whose counts are others than a beat ago."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(EVERY)
        async for link_id, link in in_slices(links()):
            if link.pulse(loop.time()):
                board.moved(link_id)
        board.beat()
