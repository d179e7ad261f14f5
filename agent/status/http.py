"""The agent's HTTP server: probes, links, and what may be done to them."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from agent.core.settings import HttpSettings
from agent.errors import CannotStartError
from agent.status.board import Board, Entry, native_view

ACTIONS: Final = ("restart", "pause", "resume")
Act = Callable[[str, str], None]
"""Link id and action → done."""
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"


class HttpServer:
    """Serves one board; `act` carries out what a caller asks of a link, `metrics` writes what Prometheus reads."""

    def __init__(self, settings: HttpSettings, board: Board, act: Act, *, metrics: Callable[[], bytes]) -> None:
        self._settings = settings
        self._board = board
        self._act = act
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"http://{self._settings.host}:{self._settings.port}"

    async def start(self) -> None:
        self._runner = web.AppRunner(self._application(), access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._settings.host, self._settings.port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise CannotStartError(
                f"agent.http.listen {self.address}: {error.strerror or error}; choose another address or free the port"
            ) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._scrape),
                web.get("/api/links", self._links),
                web.get("/api/links/{id}", self._link),
                *(web.post(f"/api/links/{{id}}/{action}", self._do) for action in ACTIONS),
                web.get("/api/federation-links", self._native),
                web.get("/api/federation-links/state/down", self._native_down),
                web.get("/api/federation-links/{vhost}", self._native),
                web.get("/api/federation-links/{vhost}/state/down", self._native_down),
                web.delete("/api/federation-links/vhost/{vhost}/{id}/{node}/restart", self._native_restart),
            ]
        )
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], object]) -> web.StreamResponse:
        if self._needs_token(request) and not self._has_token(request):
            return _error(401, "a token is needed: Authorization: Bearer TOKEN")
        try:
            response = await handler(request)  # type: ignore[misc]  # aiohttp's own handler type is private
        except web.HTTPNotFound:
            return _error(404, "no such path")
        except web.HTTPMethodNotAllowed as error:
            return _error(405, f"this path takes {', '.join(sorted(error.allowed_methods))}")
        if not isinstance(response, web.StreamResponse):
            raise TypeError("a handler answers a response")
        return response

    def _needs_token(self, request: web.Request) -> bool:
        """What changes something always does where one is set; looking only where others could look too."""
        if self._settings.token is None or request.path in {"/livez", "/readyz"}:
            return False
        is_open = self._settings.allow_anonymous or is_loopback(self._settings.host)
        return request.method not in {"GET", "HEAD"} or not is_open

    def _has_token(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")
        token = self._settings.token
        return token is not None and hmac.compare_digest(given.encode(), f"Bearer {token.reveal()}".encode())

    async def _live(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        if self._board.ready:
            return web.json_response({"status": "ok"})
        return _error(503, "the downstream's definitions have not been read yet")

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": EXPOSITION})

    async def _links(self, request: web.Request) -> web.Response:
        vhost = request.query.get("vhost")
        found = [entry for entry in self._board if vhost is None or entry.link.vhost == vhost]
        return web.json_response([self._board.view(entry) for entry in found])

    async def _link(self, request: web.Request) -> web.Response:
        link_id = request.match_info["id"]
        if link_id not in self._board:
            return _no_link(link_id)
        return web.json_response(self._board.view(self._board[link_id]))

    async def _do(self, request: web.Request) -> web.Response:
        link_id, action = request.match_info["id"], request.path.rsplit("/", 1)[1]
        if link_id not in self._board:
            return _no_link(link_id)
        self._act(link_id, action)
        return web.json_response(self._board.view(self._board[link_id]))

    async def _native(self, request: web.Request) -> web.Response:
        return web.json_response([native_view(self._board, entry) for entry in self._of_vhost(request.match_info)])

    async def _native_down(self, request: web.Request) -> web.Response:
        views = (native_view(self._board, entry) for entry in self._of_vhost(request.match_info))
        return web.json_response([view for view in views if view["status"] != "running"])

    async def _native_restart(self, request: web.Request) -> web.Response:
        link_id = request.match_info["id"]
        if link_id not in self._board or self._board[link_id].link.vhost != request.match_info["vhost"]:
            return _no_link(link_id)
        self._act(link_id, "restart")
        return web.Response(status=204)

    def _of_vhost(self, parts: Mapping[str, str]) -> list[Entry]:
        vhost = parts.get("vhost")
        return [entry for entry in self._board if vhost is None or entry.link.vhost == vhost]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _error(status: int, reason: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return web.json_response({"error": reason}, status=status, headers=headers)


def _no_link(link_id: str) -> web.Response:
    return _error(404, f"no link has the id {link_id[:64]!r}; GET /api/links lists them")
