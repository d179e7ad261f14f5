"""Passes lines to a thread that writes them: a slow or hanging disk costs events, never messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from agent.status.export.files import ExportFiles, Line

MOST_WAITING: Final = 8 * 1024 * 1024
MOST_SAMPLES_WAITING: Final = 6 * 1024 * 1024  # the rest is for events that aren't repeated
QUIET: Final = 60.0

log = structlog.get_logger()


class Pump:
    """Lines wait in a bounded queue; one thread takes them all at once."""

    def __init__(self, files: ExportFiles, *, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._waiting: list[Line] = []
        self._size = 0  # of lines that wait or are being written
        self._refused = 0
        self._wanted = False
        self._closing = False
        self._woken = threading.Condition()
        self._complained = False
        self._quiet_until = clock()
        # A daemon, because the process has to end even if a disk doesn't answer.
        self._thread = threading.Thread(target=self._run, name="status export", daemon=True)

    @property
    def dropped(self) -> int:
        """How many lines could not be kept."""
        return self._refused + self._files.lost

    def start(self) -> None:
        self._thread.start()

    def put(self, lines: Sequence[Line]) -> None:
        """Never waits: lines that don't fit are dropped. Files that are due are finished even without lines."""
        with self._woken:
            refused = sum(not self._takes(line) for line in lines)
            self._wake()
        self._refused += refused
        if refused:
            self._complain(f"{self._files.directory}: the disk does not keep up")

    async def close(self, patience: float) -> None:
        """Writes waiting lines and finishes the file, as far as the disk permits."""
        with self._woken:
            self._closing = True
            self._wake()
        await asyncio.to_thread(self._thread.join, patience)
        if self._thread.is_alive():
            log.error("status export: the disk does not answer, the last events are lost")

    def _takes(self, line: Line) -> bool:
        size = self._size + len(line.text)
        if size > (MOST_SAMPLES_WAITING if line.recurs else MOST_WAITING):
            return False
        self._size = size
        self._waiting.append(line)
        return True

    def _wake(self) -> None:
        self._wanted = True
        self._woken.notify()

    def _run(self) -> None:
        ends = False
        while not ends:
            with self._woken:
                self._woken.wait_for(lambda: self._wanted)
                self._wanted, ends = False, self._closing
                lines, self._waiting = self._waiting, []
            self._try(partial(self._files.write, lines), len(lines))
            if ends:
                self._try(self._files.close)
            with self._woken:
                self._size -= sum(len(line.text) for line in lines)

    def _try(self, work: Callable[[], None], at_stake: int = 0) -> None:
        try:
            work()
        except OSError as error:
            self._complain(f"{error.filename or self._files.directory}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - a thread's edge: what nobody foresaw must not end the export
            self._files.lost += at_stake
            self._complain(f"unexpected error: {type(error).__name__}: {error}")
        else:
            if at_stake:
                self._praise()

    def _complain(self, error: str) -> None:
        """Logs the first failure; for a disk that fails intermittently, only every few minutes."""
        if not self._complained and self._clock() >= self._quiet_until:
            self._complained, self._quiet_until = True, self._clock() + QUIET
            log.error("status export: events are dropped", error=error, dropped=self.dropped)

    def _praise(self) -> None:
        if self._complained:
            self._complained = False
            log.info("status export: events are kept again", dropped=self.dropped)
