"""Ends the process in time after a signal to stop, even if something hangs. It needs nothing else of the agent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

SECONDS: Final = 25.0  # less than the 30 s that Kubernetes waits before it kills
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
        self, report: Callable[[], None], *, seconds: float = SECONDS, for_threads: float = _FOR_THREADS
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
