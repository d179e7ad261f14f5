"""A board that a test fills, served as the agent serves its own: no broker has so many links, or such names."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agent.amqp.data.publish_tracker import Counts
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import HttpUrl, parse, parse_peer
from agent.core.links.lag import LagCritical
from agent.core.links.lifecycle import Failed, LinkState, Pause, Phase, Stalled
from agent.core.model import (
    Exchange,
    ExchangeLink,
    Link,
    LinkSettings,
    Queue,
    QueueDestination,
    QueueLink,
    QueueSource,
    Shovel,
    ShovelLink,
)
from agent.core.settings import HttpSettings
from agent.core.status.acknowledgements import Acknowledgement
from agent.errors import Failure, FailureKind, Place, Side
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.http.server import HttpServer
from tests.lab.waiting import DEADLINE

RUNNING: Final = LinkState(phase=Phase.OPEN, started=True)
STARTING: Final = LinkState(phase=Phase.OPENING, started=True)
COMPLETED: Final = LinkState(started=True, completed=True)
PAUSED: Final = LinkState(started=True, paused=True)
STALLED: Final = LinkState(phase=Phase.OPEN, started=True, stalled=Stalled("3,120 wait upstream, nothing for 41 s"))

T = TypeVar("T")


def failed(error: str, kind: FailureKind = FailureKind.UNREACHABLE, *, permanent: bool = False) -> LinkState:
    return failed_for(error, Failure(kind, Side.UPSTREAM, is_permanent=permanent))


def failed_for(error: str, failure: Failure) -> LinkState:
    return LinkState(phase=Phase.WAITING, started=True, broken=Failed(error, failure))


def link(
    number: int,
    name: str,
    *,
    upstream: str = "origin",
    remote: str = "",
    vhost: str = "/",
    limit: LagCritical | None = None,
) -> ExchangeLink:
    uri = parse(f"amqp://u:s3ntinel@{upstream}.example:5672/%2f")
    return ExchangeLink(
        id=f"{number:08x}",
        vhost=vhost,
        name=name,
        upstream=upstream,
        uris=(uri,),
        remote_name=remote or name,
        settings=LinkSettings(lag_critical=limit),
        policy="federate",
        exchange=Exchange(name, "topic"),
    )


def queue_link(number: int, name: str, *, remote: str) -> QueueLink:
    uri = parse("amqp://u:s3ntinel@origin.example:5672/%2f")
    return QueueLink(
        id=f"{number:08x}",
        vhost="/",
        name=name,
        upstream="origin",
        uris=(uri,),
        remote_name=remote,
        settings=LinkSettings(),
        policy="federate",
        queue=Queue(name),
    )


def shovel_link(number: int, name: str) -> ShovelLink:
    uris = (parse("amqp://u:s3ntinel@source.example:5672/%2f"),)
    shovel = Shovel(name, uris, uris, Place("test"), QueueSource("from"), QueueDestination("to"))
    return ShovelLink(id=f"{number:08x}", vhost="/", name=name, uris=uris, shovel=shovel)


@dataclass
class Shown:
    """One link on the board, and what it counts."""

    link: Link
    state: LinkState = RUNNING
    cluster: str | None = "dc1"
    counts: Counts = field(default_factory=Counts)
    gauges: Gauges = field(default_factory=Gauges)

    def __post_init__(self) -> None:
        self.gauges.upstream_cluster = self.cluster


class Served:
    """Runs in a thread of its own, because a browser asks while the test waits for it."""

    def __init__(self, port: int, *, token: str | None = None, host: str = "127.0.0.1", cluster: str = "dc2") -> None:
        self.acted: list[tuple[str, str]] = []
        self.peers: list[str] = []
        self.board = Board(time.time, f"{cluster}-a", cluster=cluster, group=cluster, version="0.1.0", ready=True)
        settings = HttpSettings(host, port, Secret(token) if token else None)
        self.url = f"http://127.0.0.1:{port}/"
        self._server = HttpServer(settings, self.board, self, peers=self._peers)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served board", daemon=True)

    def _peers(self) -> tuple[HttpUrl, ...]:
        return tuple(parse_peer(each) for each in self.peers)

    def start(self) -> Served:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(DEADLINE)
        return self

    async def delete_shovel(self, vhost: str, name: str) -> None:
        """The page doesn't ask for it."""

    def stop_serving(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(DEADLINE)

    def stop(self) -> None:
        self.stop_serving()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()

    def do(self, work: Callable[[], T]) -> T:
        """In the server's own thread, where the board belongs."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE)

    def put(self, links: Sequence[Shown]) -> None:
        def fill() -> None:
            for each in links:
                self.board.put(each.link, LinkState(), each.counts, lambda each=each: each.gauges)  # type: ignore[misc]
                self.board.changed(each.link.id, each.state)

        self.do(fill)

    def change(self, shown: Shown, state: LinkState) -> None:
        shown.state = state
        self.do(lambda: self.board.changed(shown.link.id, state))

    def forward(self, links: Sequence[Shown], messages: int) -> None:
        """One tick in which each of these forwards so many."""

        def tick() -> None:
            for each in links:
                each.counts.forwarded += messages
                each.counts.bytes += messages * 1024
                self.board.moved(each.link.id)
            self.board.tick()

        self.do(tick)

    def act(self, link_id: str, action: str) -> None:
        self.acted.append((link_id, action))

    def pause(self, link_id: str, _pause: Pause) -> None:
        self.act(link_id, "pause")

    def acknowledge(self, links: Mapping[str, Acknowledgement | None]) -> None:
        self.board.acknowledge(links)
