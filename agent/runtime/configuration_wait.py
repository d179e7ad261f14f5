"""The wait for a valid configuration: until then probes are answered, and the file is read again at intervals.

For a sidecar: a process that ends with an error takes the pod, and with it the broker, out of its Service.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from agent.core.links.lifecycle import Pause
from agent.core.settings import HttpSettings
from agent.core.status.acknowledgements import Acknowledgement
from agent.downstream.watch import signature
from agent.errors import ConfigurationError
from agent.runtime.problems import texts
from agent.status.board import Board
from agent.status.http.guard import ProbesOnly, is_loopback
from agent.status.http.server import HttpServer
from agent.tasks import run_until_first

RETRY: Final = 2.0
OPTION: Final = "--wait-for-configuration"
NOTHING_YET: Final = "the agent has no valid configuration yet"

log = structlog.get_logger()


class ConfigurationWait:
    """Serves `board`, which holds nothing but the problems, until the configuration is valid. Beyond loopback only
    probes are answered: the token that would protect the rest is in the file that isn't valid."""

    def __init__(self, path: str, load: Callable[[], object], address: HttpSettings, board: Board) -> None:
        """`load` raises ConfigurationError while the file isn't valid."""
        self._path = path
        self._load = load
        self._address = address
        self._board = board
        self._reading_asked = asyncio.Event()

    async def until_valid(self, refused: ConfigurationError, stop: asyncio.Event) -> None:
        """Returns when the file is valid, or when the agent has to stop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reading_asked.set)
        is_local = is_loopback(self._address.host)
        guard = None if is_local else ProbesOnly(f"{NOTHING_YET}: its log says what is wrong")
        server = HttpServer(self._address, self._board, _NoLinks(), guard=guard, named=OPTION)
        await server.start()
        try:
            self._show(refused)
            log.info("waiting for a valid configuration", configuration=self._path, http=server.address)
            await run_until_first(self._retry(), _set(stop))
        finally:
            await server.stop()

    async def _retry(self) -> None:
        """Load the file whenever two checks find it the same, until it is valid: one that has just changed may not be
        whole yet. On SIGHUP it is read all the same."""
        seen = await self._signature()
        while True:
            is_asked = await self._rest()
            found = await self._signature()
            if found == seen or is_asked:
                try:
                    await asyncio.to_thread(self._load)
                except ConfigurationError as error:
                    self._show(error)
                else:
                    return
            seen = found

    async def _rest(self) -> bool:
        """Wait for the next check; True if SIGHUP ended the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY):
                await self._reading_asked.wait()
        is_asked = self._reading_asked.is_set()
        self._reading_asked.clear()
        return is_asked

    async def _signature(self) -> object:
        return await asyncio.to_thread(signature, self._path)

    def _show(self, refused: ConfigurationError) -> None:
        problems = texts(refused.problems)
        if problems != self._board.problems:
            log.error("configuration refused", error="; ".join(problems))
        self._board.problems = problems


async def _set(event: asyncio.Event) -> None:
    await event.wait()


class _NoLinks:
    """Actions on links, of which there are none."""

    def act(self, _link_id: str, _action: str) -> None: ...

    def pause(self, _link_id: str, _pause: Pause) -> None: ...

    def acknowledge(self, _links: Mapping[str, Acknowledgement | None]) -> None: ...

    async def delete_shovel(self, _vhost: str, _name: str) -> str:
        return NOTHING_YET
