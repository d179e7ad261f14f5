"""One beat a second for what links do by the clock: a timer for each of them would cost more than all they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from agent.status.board import Board

EVERY: Final = 1.0
SLICE: Final = 100  # after so many links, messages have their turn


class Beating(Protocol):
    def pulse(self, now: float) -> bool:
        """Whether something moved since the last beat."""


async def beat(links: Callable[[], Iterable[tuple[str, Beating]]], board: Board) -> None:
    """Until cancelled; the board is told of each link whose counts are others than a beat ago."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(EVERY)
        for number, (link_id, link) in enumerate(tuple(links()), 1):
            if link.pulse(loop.time()):
                board.moved(link_id)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        board.beat()
