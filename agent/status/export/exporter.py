"""Exports the board: every change of a link's status at once, and regular samples of all links."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import cycle
from typing import Final

from agent.core.export_event import AgentStatus
from agent.core.links.lifecycle import LinkState
from agent.core.settings import StatusExportSettings
from agent.errors import CannotStartError
from agent.slices import in_slices
from agent.status.board import Board
from agent.status.entry import BoardEntry
from agent.status.export.events import Events, day_at
from agent.status.export.files import ExportFiles, Line
from agent.status.export.names import FileNames
from agent.status.export.pump import Pump
from agent.tasks import GuardedTasks

TICK: Final = 0.5  # links are sampled a few at a time, so that messages don't wait
STOP_PATIENCE: Final = 5.0
END_PATIENCE: Final = 2.0  # for a task that only has to notice its end
TASK: Final = "status export"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Exporter:
    """`clock` is monotonic; the time of day comes from the board."""

    def __init__(
        self,
        settings: StatusExportSettings,
        board: Board,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._board = board
        self._clock = clock
        self._sleep = sleep
        self._events = Events(board)
        self._files = ExportFiles(settings, FileNames.of(board.owner, board.clock()), clock=clock)
        self._pump = Pump(self._files, clock=clock)
        self._pending: list[Line] = []
        self._tasks = GuardedTasks(board.errors, sleep=sleep)

    async def start(self) -> None:
        """Must be called before there is any link."""
        try:
            await asyncio.to_thread(self._files.prepare, day_at(self._board.clock()))
        except OSError as error:
            if error.errno not in _FULL:  # a full disk drops events until it has room again
                raise CannotStartError(
                    f"agent.status-export.directory {self._settings.directory}: {error.strerror or error}"
                    f" ({error.filename}); let the agent write there, or choose another directory"
                ) from error
        self._pump.start()
        self._tell_of_agent(AgentStatus.STARTED)
        self._board.on_transition.append(self._tell_transition)
        self._tasks.keep(TASK, self._run)

    async def stop(self) -> None:
        """Tells how all links were in the end, and finishes the file."""
        await self._tasks.end(END_PATIENCE)
        self._board.on_transition.remove(self._tell_transition)
        await self._sample(self._board)
        self._tell_of_agent(AgentStatus.STOPPED)
        self._hand_over()
        await self._pump.close(STOP_PATIENCE)
        self._board.export_dropped = self._pump.dropped

    async def _run(self) -> None:
        """Samples each link once per interval, and writes heartbeats, until cancelled."""
        slots = max(1, round(self._settings.sample_interval / TICK))
        rest = self._settings.sample_interval / slots
        due = self._clock()
        for slot in cycle(range(slots)):
            due = max(due + rest, self._clock())
            await self._sleep(due - self._clock())
            with self._board.errors.catching(TASK):
                await self._sample(entry for entry in self._board if int(entry.link.id, 16) % slots == slot)
                if slot == slots - 1:
                    self._tell_of_agent(AgentStatus.HEARTBEAT)
            self._hand_over()
            self._board.export_dropped = self._pump.dropped

    def _tell_transition(self, entry: BoardEntry, before: LinkState | None) -> None:
        self._tell(self._events.transition(entry, before.status if before else None))

    async def _sample(self, entries: Iterable[BoardEntry]) -> None:
        async for entry in in_slices(entries):
            self._tell(self._events.sample(entry))

    def _tell_of_agent(self, status: AgentStatus) -> None:
        self._tell(self._events.of_agent(status, self._settings.sample_interval))

    def _tell(self, line: Line) -> None:
        if (
            not self._pending
        ):  # events of one turn are written together: when all links fail, messages wait for no thread
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._pending.append(line)

    def _hand_over(self) -> None:
        told, self._pending = self._pending, []
        self._pump.put(told)
