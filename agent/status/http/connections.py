"""HTTP connections of clients: what each may take, and which is closed in favour of another.

All are checked together once a second, so none has a timer of its own.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import structlog
from aiohttp import web
from aiohttp.web_server import Server

from agent.status.http.responses import refuse

HEAD_WITHIN: Final = 10.0  # seconds, for the headers of a request: from its first byte, or from connecting
IDLE: Final = 60.0  # between two requests; most scrapers come more often, so they keep their connection
PATIENCE: Final = 30.0  # a reader that takes less than LEAST_TAKEN for this long is disconnected
LEAST_TAKEN: Final = 64 * 1024
CLOSED_WITHIN: Final = 5.0  # for unsent data when a connection ends
BODY_PATIENCE: Final = 2.0  # for the rest of a body that isn't read
MOST_BODY: Final = 64 * 1024  # no request needs one
MOST_UNREAD: Final = 128 * 1024  # of one client, received and not part of a request that is being handled
MOST_HELD: Final = 64 * 1024 * 1024  # unsent responses of all clients
MOST_HEADERS: Final = 64

_SHARE: Final = 5  # one in this many descriptors is for HTTP, and with the spare ones a quarter; the rest is for links
_MOST: Final = 512
_FEWEST: Final = 16
STALLED_AFTER: Final = 1.0  # every large response is unsent for a moment
SWEEP_INTERVAL: Final = 1.0
AT_ONCE: Final = 2  # large responses
BUSY: Final = "the agent answers too many large requests already; try again in a second"
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

log = structlog.get_logger()


def most_connections(descriptors: int) -> int:
    """The number of HTTP connections that may be open, given the process's limit of descriptors."""
    return max(_FEWEST, min(_MOST, descriptors // _SHARE))


def spare_connections(most: int) -> int:
    """The number of further ones that may be open briefly while all are being served and none can be closed."""
    return most // 4


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST * _SHARE if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Raises the soft limit to the hard one: the usual 1,024 are for programs that call select(), which we don't."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class ClientConnection(web.RequestHandler):
    """One client's connection: its state, its memory, and when it is overdue."""

    def __init__(self, server: Server, register: ClientConnections, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # so that nothing is logged
            lingering_time=BODY_PATIENCE,
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
        """True while no request is being handled: the client has to send one."""
        return self._waiter is not None and not self._waiter.done()

    def dispensable_since(self, now: float) -> float | None:
        """The time since which it could be closed in favour of another; None while it is being served."""
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


class ClientConnections:
    """If there is no room, the client with the most connections loses the one that has been idle longest. Few large
    responses are made at the same time: together they would take too much memory."""

    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self.clock = clock
        self.most = most
        self.most_held = MOST_HELD
        self._open: set[ClientConnection] = set()
        self._free = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(self._open)

    def admit(self, newcomer: ClientConnection) -> bool:
        while len(self._open) >= self.most and self._make_room():
            pass
        if len(self._open) >= self.most + spare_connections(self.most):
            return False
        self._open.add(newcomer)
        return True

    def forget(self, connection: ClientConnection) -> None:
        self._open.discard(connection)

    def has_memory(self) -> bool:
        """True if one more response may be made; clients that read theirs too slowly are disconnected for it."""
        now = self.clock()
        stalled = sorted(
            (since, id(each), each)
            for each in self._open
            if each.held and (since := each.dispensable_since(now)) is not None
        )
        held = sum(each.held for each in self._open)
        for _, _, each in stalled:
            if held <= self.most_held:
                break
            held -= each.held
            self._drop(each)
        return held <= self.most_held

    @asynccontextmanager
    async def large_response(self) -> AsyncIterator[None]:
        """Allows one; refuses it if too many wait or too much is unsent."""
        if self._waiting >= self.most // 4:
            raise web.HTTPServiceUnavailable(text=BUSY)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            if not self.has_memory():
                raise web.HTTPServiceUnavailable(text=BUSY)
            yield
        finally:
            self._free.release()

    def sweep(self) -> None:
        now = self.clock()
        for each in [each for each in self._open if each.is_overdue(now)]:
            self._drop(each)
        self.has_memory()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL)
            self.sweep()

    def end(self) -> None:
        """The agent stops: it doesn't wait for clients that don't read."""
        for each in [each for each in self._open if each.held]:
            self._drop(each)

    def _make_room(self) -> bool:
        now = self.clock()
        found = [(each, since) for each in self._open if (since := each.dispensable_since(now)) is not None]
        if not found:
            return False
        of_address = Counter(each.address for each in self._open)
        self._drop(min(found, key=lambda pair: (-of_address[pair[0].address], pair[1]))[0])
        return True

    def _drop(self, connection: ClientConnection) -> None:
        """Doesn't count from now on; the transport is closed one turn of the loop later."""
        self._open.discard(connection)
        connection.abort()
