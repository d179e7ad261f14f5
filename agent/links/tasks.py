"""Work that is done side by side."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from agent.tasks import report_unforeseen

T1 = TypeVar("T1")
T2 = TypeVar("T2")


async def both(first: Awaitable[T1], second: Awaitable[T2]) -> tuple[T1, T2]:
    """The results of the two; where one fails the other is ended before the error goes on."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await asyncio.gather(*tasks)
    finally:
        pending = [task for task in tasks if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        report_unforeseen(tasks, but=sys.exception())
