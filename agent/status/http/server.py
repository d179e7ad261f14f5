"""The agent's HTTP server: the guard decides on access, the API handles routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import HttpUrl
from agent.core.settings import HttpSettings
from agent.errors import CannotStartError
from agent.status.board import Board
from agent.status.fleet import Peers
from agent.status.http.api import HttpApi, LinkActions
from agent.status.http.connections import (
    MOST_BODY,
    ClientConnection,
    ClientConnections,
    descriptor_limit,
    most_connections,
)
from agent.status.http.guard import Guard, ProbesOnly
from agent.status.http.responses import refuse
from agent.status.page import serve
from agent.tasks import GuardedTasks

STOP_PATIENCE: Final = 5.0
END_PATIENCE: Final = 2.0  # for a task that only has to notice its end
BACKLOG: Final = 100  # connections that the system takes before the agent does


class HttpServer:
    """Serves one board, and passes actions on; `token` and `peers` return those that are configured now."""

    def __init__(
        self,
        settings: HttpSettings,
        board: Board,
        actions: LinkActions,
        *,
        token: Callable[[], Secret | None] = lambda: None,
        peers: Callable[[], tuple[HttpUrl, ...]] = lambda: (),
        guard: ProbesOnly | None = None,
        named: str = "agent.http.listen",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`guard` is what `settings` ask for, unless it is given. `named` is the option that the address is from."""
        self._settings = settings
        self._named = named
        self._board = board
        self._guard = guard or Guard(settings, token)
        self.connections = ClientConnections(clock, most_connections(descriptor_limit()))
        self._api = HttpApi(board, actions, self.connections, Peers(board, peers), settings.histograms)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._tasks = GuardedTasks(board.errors)

    @property
    def address(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"http://{host}:{self._settings.port}"

    async def start(self) -> None:
        application = web.Application(middlewares=[self._answer])
        application.add_routes([*self._api.routes(), *serve.routes()])
        # A handler is cancelled when its client disconnects: a reader of events frees its place at once.
        runner = self._runner = web.AppRunner(application, shutdown_timeout=STOP_PATIENCE, handler_cancellation=True)
        await runner.setup()
        loop = asyncio.get_running_loop()
        host, port = self._settings.host, self._settings.port
        try:
            # The backlog is at most the number of open connections: refused ones take descriptors for a moment too.
            backlog = min(BACKLOG, self.connections.most)
            self._server = await loop.create_server(lambda: self._connect(runner, loop), host, port, backlog=backlog)
        except OSError as error:
            await runner.cleanup()
            raise CannotStartError(
                f"{self._named} {self.address}: {error.strerror or error}; choose another address or free the port"
            ) from error
        self._tasks.keep("watch HTTP connections", self.connections.watch)

    def _connect(self, runner: web.AppRunner, loop: asyncio.AbstractEventLoop) -> ClientConnection:
        if runner.server is None:
            raise ConnectionAbortedError("the agent is stopping")
        return ClientConnection(runner.server, self.connections, loop=loop)

    async def stop(self) -> None:
        self._board.close()
        await self._tasks.end(END_PATIENCE)
        if self._server is not None:
            self._server.close()
        self.connections.end()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, at the edge of every handler: whatever happens, the response is JSON and reveals no
        internals."""
        refusal = self._guard.refusal(request) or _refuse_body(request)
        if refusal is not None:
            return refusal
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            return _not_allowed(request, error)
        except web.HTTPNotFound:
            return refuse(404, "no such path")
        except web.HTTPException as error:
            return refuse(error.status, error.text or error.reason)
        except ConnectionError:
            raise  # the asker has left
        except Exception as error:  # noqa: BLE001 - a handler's edge
            self._board.errors.report("answer an HTTP request", error, path=request.path)
            return refuse(500, "the agent failed to answer; its log shows why")


def _not_allowed(request: web.Request, error: web.HTTPMethodNotAllowed) -> web.Response:
    methods = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
    if request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": methods})
    return refuse(405, f"this path takes {methods}", Allow=methods)


def _refuse_body(request: web.Request) -> web.Response | None:
    if (request.content_length or 0) <= MOST_BODY:
        return None
    response = refuse(413, "no path accepts a body")
    response.force_close()
    return response
