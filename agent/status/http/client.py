"""One HTTP client's connection: its state, its memory, and when it is overdue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import structlog
from aiohttp import web
from aiohttp.web_server import Server

from agent.status.http.answers import refuse
from agent.status.http.limits import (
    CLOSED_WITHIN,
    HEAD_WITHIN,
    IDLE,
    LEAST_TAKEN,
    LINGER,
    MOST_HEADERS,
    MOST_UNREAD,
    PATIENCE,
)

STALLED_AFTER: Final = 1.0  # every large response is unsent for a moment
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

log = structlog.get_logger()


class Register(Protocol):
    clock: Callable[[], float]

    def admit(self, newcomer: Connection) -> bool:
        """Adds a connection; returns whether there is room for it."""

    def forget(self, connection: Connection) -> None:
        """Removes a closed connection."""


class Connection(web.RequestHandler):
    """All connections are checked together once a second, so none has its own timer."""

    def __init__(self, server: Server, register: Register, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # so that nothing is logged
            lingering_time=LINGER,
            max_headers=MOST_HEADERS,
            auto_decompress=False,  # no handler reads bodies
        )
        self._register = register
        self._wire: asyncio.Transport | None = None
        self._since = 0.0  # when it connected or its last answer was written
        self._began = 0.0  # when the first of the unread bytes came
        self._unread = 0
        self._answered = False  # no request is being handled; the rest of a body may still arrive
        self._closing: float | None = None
        self._stalled: float | None = None
        self._unsent = 0  # bytes, when the stall was last checked
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = wire = cast("asyncio.Transport", transport)  # uvloop's transport doesn't inherit from it
        self._since = self._register.clock()
        self.address = str((wire.get_extra_info("peername") or ("",))[0])
        if self._register.admit(self):
            super().connection_made(wire)
        else:
            self._force_close = True
            wire.write(FULL)
            wire.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._register.forget(self)
        self._wire = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        requests = self._request_count
        if data and self._unread == 0:
            self._began = self._register.clock()
        self._unread += len(data)
        super().data_received(data)
        if self._request_count != requests:
            self._unread, self._answered = 0, False
        elif self._unread > MOST_UNREAD:
            self.abort()

    def log_access(self, request: Any, response: Any, time: float | None) -> None:  # noqa: ARG002
        """Called after every response: from now on the connection waits for the next request. A client that has sent it
        already is disconnected: hundreds of pipelined requests would keep others waiting, and ordinary clients don't
        pipeline.
        """
        self._since, self._answered = self._register.clock(), True
        if self._messages:
            self.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled, self._unsent = self._register.clock(), self.held

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Replaces aiohttp's handling, which logs and returns the text that was sent; it may contain a token."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of the response is already sent")
        log.debug("invalid request", error=type(exc).__name__)
        response = refuse(status, "the request is invalid: this is an HTTP/1.1 server")
        response.force_close()
        return response

    def abort(self) -> None:
        """Closes without sending the rest."""
        if self._wire is not None:
            self._wire.abort()

    @property
    def held(self) -> int:
        """Unsent bytes."""
        return 0 if self._wire is None else self._wire.get_write_buffer_size()

    @property
    def _waits(self) -> bool:
        """Whether the client has to send a request; none is being handled."""
        return self._waiter is not None and not self._waiter.done()

    def dispensable_since(self, now: float) -> float | None:
        """Since when it could be closed in favour of another; None while it is being served."""
        if self._closing is not None:
            return self._closing
        if self._stalled is not None:
            return self._stalled if now - self._stalled >= STALLED_AFTER else None
        return self._since if self._waits or self._answered else None

    def is_overdue(self, now: float) -> bool:
        """Called about once a second; keeps its last observation."""
        if self._wire is None or self._wire.is_closing():
            self._closing = now if self._closing is None else self._closing
            return now - self._closing >= CLOSED_WITHIN
        if self._stalled is not None:
            return self._takes_too_little(now, self._stalled)
        if not self._waits:
            return False
        if self._unread:
            return now - self._began >= HEAD_WITHIN
        return now - self._since >= (IDLE if self._request_count else HEAD_WITHIN)

    def _takes_too_little(self, now: float, since: float) -> bool:
        if now - since < PATIENCE:
            return False
        if self._unsent - self.held < LEAST_TAKEN:
            return True
        self._stalled, self._unsent = now, self.held
        return False
