"""The table of HTTP clients that misbehave: by name, what each of hundreds does with its connection."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import cycle
from types import TracebackType
from typing import Final, Self

from tests.lab.waiting import DEADLINE

OPEN: Final = 400  # connections that the clients keep, more than the agent has descriptors
AT_ONCE: Final = 20
PAUSE: Final = 0.2  # seconds between two waves
LONGEST: Final = 120.0  # seconds, whatever the test does

Speak = Callable[[socket.socket, int], None]
"""What a client does in each wave; the number is that of its waves so far."""

HEAD: Final = b"Host: localhost\r\nUser-Agent: hostile\r\nAccept: */*\r\nX-Long: " + b"x" * 1000 + b"\r\n\r\n"


def idle(client: socket.socket, wave: int) -> None:
    """Connects, and that is all."""


def slow_head(client: socket.socket, wave: int) -> None:
    """A request byte by byte."""
    client.send((b"GET /livez HTTP/1.1\r\n" + HEAD)[wave : wave + 1])


def unread_metrics(client: socket.socket, wave: int) -> None:
    """Asks for /metrics again and again and reads nothing."""
    client.send(b"GET /metrics HTTP/1.1\r\n" + HEAD)


def unread_events(client: socket.socket, wave: int) -> None:
    """Asks for events and reads none."""
    if wave == 0:
        client.send(b"GET /api/events HTTP/1.1\r\n" + HEAD)


def endless_body(client: socket.socket, wave: int) -> None:
    """Asks for something with a body that never ends."""
    if wave == 0:
        client.send(b"POST /api/links/x/pause HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HEAD)
    client.send(b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n")


def pipelined(client: socket.socket, wave: int) -> None:
    """Asks hundreds of questions without waiting for an answer."""
    client.send((b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n") * 100)


CLIENTS: Final[Mapping[str, Speak]] = {
    found.__name__: found for found in (idle, slow_head, unread_metrics, unread_events, endless_body, pipelined)
}


class HostileClients:
    """Wave after wave in a thread of its own: new ones connect, of each kind in turn, and all that are open speak."""

    def __init__(self, port: int, *kinds: Speak) -> None:
        self.connected = 0  # in all
        self._port = port
        self._kinds = cycle(kinds)
        self._open: deque[tuple[socket.socket, int, Speak]] = deque()  # with the wave that each came in
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        for wave in range(int(LONGEST / PAUSE)):
            for _ in range(AT_ONCE):
                self._connect(wave)
            for client, came, speak in tuple(self._open):
                with suppress(OSError):  # the agent has closed it, or takes nothing now
                    speak(client, wave - came)
            if self._stop.wait(PAUSE):
                break
        for client, *_ in self._open:
            client.close()

    def _connect(self, wave: int) -> None:
        while len(self._open) >= OPEN:
            self._open.popleft()[0].close()
        client = socket.socket()
        client.settimeout(1.0)
        with suppress(OSError):
            client.connect(("127.0.0.1", self._port))
            self.connected += 1
        client.setblocking(False)
        self._open.append((client, wave, next(self._kinds)))
