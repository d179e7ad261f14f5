"""A few channels of one connection for small questions: a channel for each link would cost the broker far more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.wire.channel import Channel

COUNTERS: Final = 4


class Desk:
    """One asks on a channel at a time, so an error that closes it is the asker's own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._free = asyncio.Semaphore(COUNTERS)
        self._idle: list[Channel] = []

    @asynccontextmanager
    async def counter(self) -> AsyncIterator[Channel]:
        async with self._free:
            usable = [channel for channel in self._idle if channel.is_usable]
            channel = usable.pop() if usable else self._connection.wire.begin_channel()
            self._idle = usable
            try:
                yield channel
            except BaseException:
                channel.leave()  # what was asked on it may be answered yet, and by closing it
                raise
            self._idle.append(channel)
