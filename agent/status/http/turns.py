"""Limits how many large responses are made at the same time: together they would take too much memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from agent.status.http.clients import Connections

AT_ONCE: Final = 2
BUSY: Final = "the agent answers too many large requests already; try again in a second"


class Turns:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._free = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    @property
    def most_connections(self) -> int:
        return self._connections.most

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Allows one large response; refuses it if too many wait or too much is unsent."""
        if self._waiting >= self.most_connections // 4:
            raise web.HTTPServiceUnavailable(text=BUSY)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            if not self._connections.has_memory():
                raise web.HTTPServiceUnavailable(text=BUSY)
            yield
        finally:
            self._free.release()
