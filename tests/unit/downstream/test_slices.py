"""Long work leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from agent.downstream.slices import in_slices


async def test_others_have_their_turn_between_slices() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def steps() -> Generator[None, None, str]:
        for _ in range(10):
            yield
        return "done"

    now = iter(range(1_000))
    task = asyncio.create_task(other())
    assert await in_slices(steps(), clock=lambda: next(now)) == "done"
    task.cancel()
    assert turns >= 10
