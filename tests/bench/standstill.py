"""For how long an agent computes without answering anybody."""

from __future__ import annotations

import http.client
import threading
import time
from types import TracebackType
from typing import Final, Self

EVERY: Final = 0.01
TIMEOUT: Final = 120.0
AGAIN: Final = 0.2
FAILURES: Final = (OSError, http.client.HTTPException)


class Standstill:
    """Asks whether the agent lives, all the time. What counts is the CPU time that the agent takes until it answers:
    where others have the processor, the agent is late too, and stands still for nobody. An answer takes some turns of
    the agent's loop, so this is more than the longest of them, by little.
    """

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._clock = _clock_of(pid)
        self._longest = self._latest = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def take(self) -> tuple[float, float]:
        """The longest since this was asked last, in seconds of the agent's CPU and of the wall's clock."""
        found = self._longest, self._latest
        self._longest = self._latest = 0.0
        return found

    def follow(self, pid: int) -> None:
        """The agent is another process now."""
        self._clock = _clock_of(pid)

    def _watch(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        while not self._done.wait(EVERY):
            try:
                self._ask(connection)
            except FAILURES:  # it restarts
                connection.close()
                self._done.wait(AGAIN)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        began, spent = time.monotonic(), time.clock_gettime(self._clock)
        connection.request("GET", "/livez")
        connection.getresponse().read()
        late = time.monotonic() - began
        self._latest = max(self._latest, late)
        self._longest = max(self._longest, min(late, time.clock_gettime(self._clock) - spent))


def _clock_of(pid: int) -> int:
    """Linux gives each process a clock of its CPU time (`clock_getcpuclockid`)."""
    return (~pid << 3) | 2
