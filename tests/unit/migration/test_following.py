"""A copy that goes on: through errors of either side, and without asking again and again for what was refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from agent.core.addresses.http_url import parse
from agent.core.migration.selection import everything
from agent.errors import AgentError, BrokerError, Place
from agent.management.client import ManagementClient
from agent.management.declaring import DeclaringClient
from agent.migration.following import BETWEEN, LONGEST_WAIT, REFUSED_AGAIN, CopyRound, Follower
from agent.migration.reading import ClusterPair

SELECTION = {"v": everything(Place("m.yaml"))}


@dataclass(slots=True)
class Api:
    """An HTTP API with a vhost `v`, in memory: what is put is there, but for what is refused."""

    queues: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    is_down: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/api/")
        if self.is_down:
            return web.json_response({"error": "down"}, status=500)
        if request.method == "PUT":
            return self._put(path)
        kind, _, _ = path.partition("/")
        answers: dict[str, Any] = {
            "overview": {"cluster_name": "c", "rabbitmq_version": "4.3.6", "exchange_types": [{"name": "direct"}]},
            "vhosts": {"name": "v"},
            "queues": [{"name": each, "durable": True, "arguments": {}, "type": "classic"} for each in self.queues],
        }
        return web.json_response(answers.get(kind, []))

    def _put(self, path: str) -> web.Response:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if name in self.refused:
            return web.json_response({"error": "bad_request", "reason": "no"}, status=400)
        self.queues.append(name)
        return web.Response(status=201)


class StopError(Exception):
    """The test has seen enough."""


async def follow(source: Api, target: Api, steps: list[Callable[[], None]]) -> tuple[list[Any], list[float]]:
    """Rounds of a copy; each step happens while it waits for the next one. What was reported, and the waits."""
    reported: list[CopyRound | AgentError] = []
    waits: list[float] = []
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        waits.append(seconds)
        if not steps:
            raise StopError
        steps.pop(0)()

    async with served(source) as here, served(target) as there:
        urls = [[parse(f"http://u:p@127.0.0.1:{port}")] for port in (here, there)]
        async with ManagementClient(urls[0], where="source") as reading, DeclaringClient(urls[1]) as declaring:
            follower = Follower(
                ClusterPair(reading, declaring), SELECTION, reported.append, sleep, lambda: now, lambda: 0.99
            )
            with suppress(StopError):
                await follower.run()
    return reported, waits


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[int]:
    application = web.Application()
    application.router.add_route("*", "/api/{path:.*}", api.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def copied(reported: list[Any]) -> list[int | None]:
    """The number of objects of each round, None for an error."""
    return [None if isinstance(each, BrokerError) else each.account.done.total() for each in reported]


async def test_what_comes_is_copied_and_what_goes_stays() -> None:
    source, target = Api(["a"]), Api(["b"])

    def change() -> None:
        source.queues[:] = ["c"]

    reported, waits = await follow(source, target, [change, lambda: None])
    assert copied(reported) == [1, 1, 0]
    assert target.queues == ["b", "a", "c"]
    assert waits == [BETWEEN] * 3


async def test_errors_of_either_side_are_gone_through() -> None:
    source, target = Api(["a"]), Api()
    source.is_down = True

    def change() -> None:
        source.is_down, target.is_down = False, True

    def end() -> None:
        target.is_down = False

    reported, waits = await follow(source, target, [lambda: None] * 20 + [change, lambda: None, end, lambda: None])
    assert copied(reported) == [None] * 23 + [1, 0]
    assert all(waits[at] <= waits[at + 1] for at in range(20))
    assert max(waits) <= LONGEST_WAIT
    assert waits[-2:] == [BETWEEN, BETWEEN]
    assert "source" in str(reported[0])


async def test_what_is_refused_is_tried_rarely_and_the_rest_at_once() -> None:
    source, target = Api(["bad"]), Api(refused={"bad"})
    rounds = int(REFUSED_AGAIN / BETWEEN)
    steps: list[Callable[[], None]] = [lambda: source.queues.append("good"), *[lambda: None] * rounds]
    reported, _ = await follow(source, target, steps)
    assert target.asked == ["bad", "good", "bad"]
    assert [len(each.account.left) for each in reported] == [1, *[0] * (rounds - 1), 1, 0]
