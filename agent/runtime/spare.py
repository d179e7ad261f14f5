"""A connection that may be lost, opened before anybody needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from agent.amqp.connect import Connection
from agent.errors import BrokerError


class Spare:
    """Use it once, with `async with`, or discard it."""

    def __init__(self, opening: Coroutine[Any, Any, Connection]) -> None:
        self._opening = asyncio.ensure_future(opening)
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Connection:
        return await self._opening

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def discard(self) -> None:
        """Closes it in the background, whether it is open yet or not; again, it does nothing."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        try:
            connection = await self._opening
        except BrokerError:
            return  # whoever needed it was told; nobody else has to know
        await connection.close()
