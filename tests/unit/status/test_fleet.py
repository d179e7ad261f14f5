"""Summaries of other agents: asked for with a deadline and bounds, and believed in nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import parse, parse_peer
from agent.core.links.lifecycle import Failed, LinkState, Phase
from agent.errors import UriError
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.fleet import LONGEST, MOST_BYTES, MOST_EDGES, Peers, UnusableAnswerError, checked, summary
from tests.lab.ports import Ports
from tests.unit.definitions.documents import DOWNSTREAM, complaints, load
from tests.unit.status.test_board import LINK, RUNNING, Clock, shovel_between

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def board(cluster: str = "dc2", upstream: str = "dc1") -> Board:
    made = Board(Clock(), f"{cluster}-a", monotonic=Clock(), cluster=cluster, group=cluster)
    made.put(LINK, LinkState(), Counts(), lambda: Gauges(upstream_cluster=upstream, backlog=7))
    made.changed(LINK.id, RUNNING)
    return made


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[int]:
    ports = Ports()
    port = ports.take()
    application = web.Application()
    application.router.add_get("/api/summary", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield port
    await runner.cleanup()
    ports.release()


async def fleet_of(port: int, userinfo: str = "", *, patience: float = 60.0) -> list[dict[str, Any]]:
    peers = Peers(board(), lambda: (parse_peer(f"http://{userinfo}127.0.0.1:{port}"),), patience=patience)
    found: list[Any] = (await peers.fleet())["agents"]
    return found


async def test_a_summary_has_links_by_upstream() -> None:
    made = board()
    made.changed(LINK.id, LinkState(phase=Phase.WAITING, started=True, broken=Failed("gone")))
    found = await summary(made)
    assert (found["level"], found["links"], found["cluster"]) == ("down", {"backoff": 1}, "dc2")
    [edge] = found["edges"]
    assert (edge["upstream"], edge["links"], edge["waiting"], edge["is_exact"]) == ("dc1", {"backoff": 1}, 7, True)
    assert checked(found) == found


async def test_a_summary_has_a_shovel_between_its_own_two_clusters() -> None:
    made = board()
    made.clusters.learn(parse("amqp://far"), "dc3")
    link = shovel_between("amqp://elsewhere:1", "amqp://far")
    made.put(link, RUNNING, Counts(), Gauges)
    found = await summary(made)
    ends = {(edge["upstream"], edge["destination"]): edge["links"] for edge in found["edges"]}
    assert ends == {("dc1", "dc2"): {"running": 1}, ("elsewhere:1", "dc3"): {"running": 1}}
    assert checked(found) == found


async def test_peers_are_asked_with_their_token_and_not_again_at_once() -> None:
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Authorization"))
        return web.json_response(await summary(board("dc1", "dc2")))

    async with listening(answer) as port:
        peers = Peers(board(), lambda: (parse_peer(f"http://agent:t0ken@127.0.0.1:{port}"),), patience=60.0)
        found: list[Any] = (await peers.fleet())["agents"]
        own, peer = found
        await asyncio.gather(*(peers.fleet() for _ in range(5)))
    assert asked == ["Bearer t0ken"]
    assert (own["url"], own["summary"]["cluster"]) == (None, "dc2")
    assert (peer["url"], peer["summary"]["cluster"], peer["error"]) == (f"http://127.0.0.1:{port}", "dc1", None)
    assert "t0ken" not in str(peer)


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(10 * MOST_BYTES // 1024):
        await response.write(b" " * 1024)
    return response


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:1/secret")


async def refusing(request: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "a token is needed"}, status=401)


async def nonsense(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>")


async def deep(request: web.Request) -> web.StreamResponse:
    return web.Response(text="[" * 100_000)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (endless, "more than 256 KiB"),
        (silent, "no answer within 0.1 s"),
        (elsewhere, "answers with status 302"),
        (refusing, "write its token into the URL"),
        (nonsense, "doesn't answer with JSON"),
        (deep, "doesn't answer with JSON"),
    ],
)
async def test_a_peer_that_misbehaves_is_named_and_costs_little(answer: Answer, said: str) -> None:
    async with listening(answer) as port:
        own, peer = await fleet_of(port, patience=0.1 if answer is silent else 60.0)
    assert own["error"] is None
    assert said in peer["error"]
    assert peer["summary"] is None


async def test_what_a_lost_peer_reported_last_is_kept() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(await summary(board("dc1", "dc2")))

    made = board()
    later = [0.0]
    made.monotonic = lambda: later[0]
    async with listening(answer) as port:
        peers = Peers(made, lambda: (parse_peer(f"http://127.0.0.1:{port}"),), patience=60.0)
        await peers.fleet()
    later[0] = 60.0
    found: list[Any] = (await peers.fleet())["agents"]
    _, peer = found
    assert "can't be reached: Connection refused" in peer["error"]
    assert peer["summary"]["cluster"] == "dc1"
    assert peer["at"] is not None


@pytest.mark.parametrize(
    "change",
    [{"level": "wonderful"}, {"edges": {}}, {"edges": [1]}, {"verdict": 5}, {"links": {"running": -1}},
     {"links": {"running": 10**400}}, {"links": {"running": float("nan")}}, {"edges_left_out": True}],
)  # fmt: skip
async def test_what_is_no_summary_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnusableAnswerError, match="not as an agent of this release"):
        checked(await summary(board()) | change)


async def test_what_a_peer_says_is_bounded() -> None:
    found = await summary(board())
    [edge] = found["edges"]
    told = checked(found | {"verdict": "x" * 10**5, "edges": [edge] * 2_000, "links": {"running": 1, "new": 2}, "e": 1})
    assert (len(told["verdict"]), len(told["edges"]), told["edges_left_out"]) == (
        LONGEST, MOST_EDGES, 2_000 - MOST_EDGES,
    )  # fmt: skip
    assert told["links"] == {"running": 1}
    assert "e" not in told


def test_addresses_of_peers() -> None:
    assert parse_peer("http://dc1.example").safe == "http://dc1.example:9419"
    assert parse_peer("https://agent:s3ntinel@dc1.example/agent/").safe == "https://dc1.example:443/agent"
    assert "s3ntinel" not in repr(parse_peer("http://agent:s3ntinel@dc1.example"))
    with pytest.raises(UriError):
        parse_peer("ftp://dc1.example")


def test_peers_are_configured_as_urls(tmp_path: Path) -> None:
    def found(peers: str) -> list[str]:
        settings = load(tmp_path, DOWNSTREAM + f"agent: {{peers: {peers}}}").settings
        return [peer.safe for peer in settings.agent.peers]

    assert found("http://dc1") == ["http://dc1:9419"]
    assert found("['http://agent:t@dc1', 'https://dc3']") == [
        "http://dc1:9419", "https://dc3:443",
    ]  # fmt: skip
    assert "more than 100" in str(complaints(tmp_path, DOWNSTREAM + f"agent: {{peers: {['http://a'] * 101}}}"))
    assert "scheme must be http or https" in str(complaints(tmp_path, DOWNSTREAM + "agent: {peers: 'ftp://a'}"))
    assert "did you mean" in str(complaints(tmp_path, DOWNSTREAM + "agent: {peers: 'https://a?cacertfil=/x'}"))


async def test_who_asks_and_goes_away_does_not_have_peers_asked_at_once_again() -> None:
    asked, is_asked = 0, asyncio.Event()

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        is_asked.set()
        await asyncio.Event().wait()
        return web.Response()

    async with listening(answer) as port:
        peers = Peers(board(), lambda: (parse_peer(f"http://127.0.0.1:{port}"),))
        for _ in range(5):
            asking = asyncio.create_task(peers.fleet())
            await is_asked.wait()
            asking.cancel()
            await asyncio.wait([asking])
        assert asked == 1
        _, peer = (await peers.fleet())["agents"]
    assert (peer["summary"], peer["error"]) == (None, "hasn't answered yet")


async def test_an_agent_that_is_there_twice_counts_once() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(await summary(board()))  # this agent, by another address

    async with listening(answer) as port:
        _, again = await fleet_of(port)
    assert again["summary"] is None
    assert again["error"] == "is the agent dc2-a, which is shown already: remove it from agent.peers"
