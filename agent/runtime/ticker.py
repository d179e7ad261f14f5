"""One tick a second for what links do by the clock: a timer for each of them would cost more than all they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from agent.amqp.wire.ends import STANDSTILL
from agent.runtime.fairness import Fairness, Sharer
from agent.slices import in_slices
from agent.status.board import Board

EVERY: Final = 1.0
TASK: Final = "look after links every second"

log = structlog.get_logger()


class Ticking(Sharer, Protocol):
    def tick(self, now: float) -> bool:
        """Whether something moved since the last tick, or is on its way."""


async def tick_links(links: Callable[[], Iterable[tuple[str, Ticking]]], board: Board) -> None:
    """Until cancelled; the board learns of each link whose counts changed since the last second."""
    fairness = Fairness()
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + EVERY
        await asyncio.sleep(EVERY)
        if (late := loop.time() - due) > STANDSTILL:
            log.warning("the agent stood still", seconds=round(late, 1), advice="give it more CPU")
        with board.errors.catching(TASK):
            await _tick_once(links(), board, fairness)


async def _tick_once(links: Iterable[tuple[str, Ticking]], board: Board, fairness: Fairness) -> None:
    loop = asyncio.get_running_loop()
    moving: list[Ticking] = []
    async for link_id, link in in_slices(links):
        try:
            has_moved = link.tick(loop.time())
        except Exception as error:  # noqa: BLE001 - the trouble of one link must not stop all others
            board.errors.report(TASK, error, link=link_id)
        else:
            if has_moved:
                board.moved(link_id)
                moving.append(link)
    fairness.tick(moving, loop.time())
    board.tick()
