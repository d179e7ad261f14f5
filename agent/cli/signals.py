"""Signals to end: commands tidy up, an agent settles its messages, and the process ends in time even if something
hangs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import typer

T = TypeVar("T")
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_first_signal(stop: Callable[[], object]) -> None:
    """The first one calls `stop`, a second one ends the process. A terminal that closes is one, too, but not where
    that is to be ignored (`nohup`)."""
    loop = asyncio.get_running_loop()
    handled = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]

    def first() -> None:
        for each in handled:
            loop.remove_signal_handler(each)
        stop()

    for each in handled:
        loop.add_signal_handler(each, first)


def until_signal(work: Coroutine[Any, Any, T], stopped: int) -> T:
    """The first signal cancels it, waits until it has tidied up, and exits with `stopped`."""

    async def run() -> T:
        if (task := asyncio.current_task()) is not None:
            on_first_signal(task.cancel)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise typer.Exit(stopped) from None


STOPPED_WITHIN: Final = 25.0  # less than the 30 s that Kubernetes waits before it kills
_FOR_THREADS: Final = 2.0
_FOR_LOG: Final = 1.0
CLEAN: Final = 0
NOT_STOPPED: Final = 1


class StopDeadline:
    """Counts from `start` on. The interpreter waits for every thread of its pool, and a thread that reads from a
    hanging disk or pipe can't be stopped. So this one ends the process, with `NOT_STOPPED` unless all messages were
    settled.
    """

    def __init__(
        self, report: Callable[[], None], *, seconds: float = STOPPED_WITHIN, for_threads: float = _FOR_THREADS
    ) -> None:
        """`report` is called before the process is ended because it didn't stop in time; threads have so many seconds
        once all is settled."""
        self._report = report
        self._seconds = seconds
        self._for_threads = for_threads
        self._settled = threading.Event()
        self._watch: threading.Thread | None = None

    def start(self) -> None:
        if self._watch is None:
            self._watch = threading.Thread(target=self._run, name="stop deadline", daemon=True)
            self._watch.start()

    def settled(self) -> None:
        """All messages are settled; only threads without important work may be left."""
        self._settled.set()

    def _run(self) -> None:
        if self._settled.wait(self._seconds):
            threading.Event().wait(self._for_threads)
            os._exit(CLEAN)
        reporting = threading.Thread(target=self._report, daemon=True)
        reporting.start()  # in a separate thread, since the reader of the log may hang too
        reporting.join(_FOR_LOG)
        os._exit(NOT_STOPPED)
