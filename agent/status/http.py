"""The agent's HTTP server: who may ask is the guard's, what is answered the API's."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from agent.core.settings import HttpSettings
from agent.errors import CannotStartError
from agent.status.answers import refuse
from agent.status.api import Act, Api
from agent.status.board import Board
from agent.status.guard import Guard
from agent.status.page import serve

STOP_PATIENCE: Final = 5.0

log = structlog.get_logger()


class HttpServer:
    """Serves one board; `act` carries out what a caller asks of a link."""

    def __init__(self, settings: HttpSettings, board: Board, act: Act) -> None:
        self._settings = settings
        self._board = board
        self._guard = Guard(settings)
        self._api = Api(board, act)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"http://{host}:{self._settings.port}"

    async def start(self) -> None:
        application = web.Application(middlewares=[self._answer])
        application.add_routes([*self._api.routes(), *serve.routes()])
        runner = self._runner = web.AppRunner(application, shutdown_timeout=STOP_PATIENCE)
        await runner.setup()
        loop = asyncio.get_running_loop()
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await loop.create_server(lambda: _connection(runner, loop), host, port)
        except OSError as error:
            await runner.cleanup()
            raise CannotStartError(
                f"agent.http.listen {self.address}: {error.strerror or error}; choose another address or free the port"
            ) from error

    async def stop(self) -> None:
        self._board.close()
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A handler's edge: whatever happens, the answer is JSON and tells nothing that it shouldn't."""
        refusal = self._guard.refusal(request)
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
        except Exception as error:
            log.exception("unexpected error", path=request.path, error=type(error).__name__)
            return refuse(500, "the agent has failed to answer this; its log tells why")


def _not_allowed(request: web.Request, error: web.HTTPMethodNotAllowed) -> web.Response:
    methods = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
    if request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": methods})
    return refuse(405, f"this path takes {methods}", Allow=methods)


class _Connection(web.RequestHandler):
    """aiohttp logs and answers what isn't HTTP with the words that were sent; a token may be among them."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("half an answer is sent already")
        log.debug("request not understood", error=type(exc).__name__)
        response = refuse(status, "the request can't be understood: this is an HTTP/1.1 server")
        response.force_close()
        return response


def _connection(runner: web.AppRunner, loop: asyncio.AbstractEventLoop) -> _Connection:
    server = runner.server
    if server is None:
        raise ConnectionAbortedError("the agent is stopping")
    return _Connection(server, loop=loop, access_log=None)  # type: ignore[arg-type]  # so that nothing is logged
