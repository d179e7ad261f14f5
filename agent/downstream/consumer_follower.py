"""Keeps the known consumers up to date, from the downstream's events and its HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from agent.downstream.consumers import CHANNEL_CLOSED, LATE, Consumers
from agent.downstream.listen import Listener, follow
from agent.errors import AgentError
from agent.management.answers import ConsumerAnswer
from agent.tasks import run_until_first

EVENTS: Final = ("consumer.*", CHANNEL_CLOSED)
READ_AGAIN: Final = 25.0  # so that nothing stays wrong for 30 seconds
READ_ALONE: Final = 5.0  # without events
SETTLE: Final = 0.02

log = structlog.get_logger()


class ConsumerFollower:
    """Keeps `consumers` up to date while queues are watched; `read` requests those of a vhost from the HTTP API."""

    def __init__(
        self, consumers: Consumers, *, listener: Listener, read: Callable[[str], Awaitable[list[ConsumerAnswer]]]
    ) -> None:
        self._consumers = consumers
        self._listener = listener
        self._read = read
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Keep the consumers up to date until cancelled."""
        await self._consumers.is_watched.wait()
        await run_until_first(self._listen(), self._read_all())

    async def _listen(self) -> None:
        loop, consumers = self._loop, self._consumers

        def begin() -> None:
            consumers.hears(True, loop.time())
            consumers.must_read.set()  # for what changed while nobody listened

        await follow(
            self._listener,
            EVENTS,
            lambda event: consumers.heard(event, loop.time()),
            on_begin=begin,
            on_end=lambda: consumers.hears(False, loop.time()),
        )

    async def _read_all(self) -> None:
        """Read the lists at once, and again when a list can't be late any more; later at intervals."""
        is_again = False
        while True:
            begun = self._loop.time()
            self._consumers.forget_unwatched(begun)
            for vhost in self._consumers.vhosts:
                await self._read_one(vhost)
            rest = READ_AGAIN if self._consumers.is_heard else READ_ALONE
            if is_again:
                rest = min(rest, LATE)
            await asyncio.sleep(self._loop.time() - begun)
            is_again = await self._is_to_read(rest)

    async def _is_to_read(self, seconds: float) -> bool:
        """Wait until the next reading is due, at most so many seconds; True if it was requested."""
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0:
            if await self._is_asked_for(min(left, LATE)):
                return True
            if self._consumers.must_check():
                break
        return False

    async def _is_asked_for(self, seconds: float) -> bool:
        new = self._consumers.must_read
        try:
            async with asyncio.timeout(seconds):
                await new.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(SETTLE)
        new.clear()
        return True

    async def _read_one(self, vhost: str) -> None:
        found: list[ConsumerAnswer] | None = None
        try:
            found = await self._read(vhost)
        except AgentError as error:  # whoever polls reports what is wrong
            log.debug("consumers not read", vhost=vhost, error=str(error))
        self._consumers.read(vhost, found, self._loop.time())
