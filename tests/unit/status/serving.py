"""One HTTP server on a real socket, what was asked of its links, and a way to ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp

from agent.amqp.data.splice import Counts
from agent.core.addresses.secret import Secret
from agent.core.links.lifecycle import LinkState, Pause
from agent.core.settings import HttpSettings
from agent.core.status.acknowledgements import Acknowledgement
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.http.server import HttpServer
from tests.unit.status.test_board import LINK, Clock

TOKEN: Final = "t0ken"


class Served:
    def __init__(
        self, port: int, *, host: str = "127.0.0.1", token: str | None = None, anonymous: bool = False
    ) -> None:
        self.asked: list[tuple[str, str]] = []
        self.deleted: list[tuple[str, str]] = []  # shovels
        self.deletion: str | Exception | None = None  # how that ends
        self.board = Board(Clock(), "dc2-a", version="0.1.0", group="dc2")
        self.board.put(LINK, LinkState(), Counts(), Gauges)
        settings = HttpSettings(host, port, Secret(token) if token else None, allow_anonymous=anonymous)
        self.later = 0.0  # the clock of connections, in seconds, which only a test moves
        self.server = HttpServer(
            settings,
            self.board,
            self,
            clock=lambda: self.later,
        )
        self.port = port

    def act(self, link_id: str, action: str) -> None:
        self.asked.append((link_id, action))

    def pause(self, link_id: str, _pause: Pause) -> None:
        self.act(link_id, "pause")

    def acknowledge(self, links: Mapping[str, Acknowledgement | None]) -> None:
        self.board.acknowledge(links)

    async def delete_shovel(self, vhost: str, name: str) -> str | None:
        self.deleted.append((vhost, name))
        if isinstance(self.deletion, Exception):
            raise self.deletion
        return self.deletion

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(
        self, path: str, method: str = "GET", token: str | None = None, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """The status and what the JSON says; underscores in a header's name stand for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, headers=sent, json=body) as answer,
        ):
            text = await answer.text()
            return answer.status, await answer.json() if text else None


Serve = Callable[..., Awaitable[Served]]
