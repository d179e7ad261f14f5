"""A few channels of one connection for small requests: a channel for each link would cost the broker far more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.wire.channel import Channel

COUNTERS: Final = 4


class ChannelPool:
    """Each channel has one user at a time, so an error that closes it belongs to that user's request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._free = asyncio.Semaphore(COUNTERS)
        self._idle: list[Channel] = []

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[Channel]:
        async with self._free:
            usable = [channel for channel in self._idle if channel.is_usable]
            channel = usable.pop() if usable else self._connection.wire.begin_channel()
            self._idle = usable
            with ExitStack() as unless_answered:
                unless_answered.callback(channel.leave)  # a late response may close it
                yield channel
                unless_answered.pop_all()
            self._idle.append(channel)
