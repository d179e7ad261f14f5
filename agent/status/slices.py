"""Long lists in slices: messages are processed between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

SLICE: Final = 10

T = TypeVar("T")


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    for number, item in enumerate(tuple(items), 1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)
