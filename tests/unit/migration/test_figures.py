"""Figures of queues as brokers show them, and when they don't continue those of before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from agent.core.addresses import uri
from agent.errors import TransientError
from agent.management.client import ManagementClient
from agent.migration.figures import ClusterFigures, QueueFigures
from tests.unit.migration.http_api import served

OVERVIEW = {"cluster_name": "c", "rabbitmq_version": "4.3.6"}
STATS = {"publish": 5, "deliver_get": 4, "redeliver": 1, "ack": 2, "get_no_ack": 1}
QUEUE = {"name": "q", "state": "running", "node": "a", "messages": 3, "messages_unacknowledged": 2}


class Broker:
    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "overview": OVERVIEW,
            "nodes": [{"name": "a", "running": True, "uptime": 1_000}],
            "queues/v": [{**QUEUE, "message_stats": STATS}],
        }

        self.now, self.takes = 100.0, 0.0

    async def answer(self, request: web.Request) -> web.Response:
        if request.match_info["path"].startswith("queues/"):
            self.now += self.takes
        return web.json_response(self.answers[request.match_info["path"]])

    async def looks(self, *changes: dict[str, Any]) -> list[QueueFigures]:
        """One look, and one after each change."""
        async with (
            served(self.answer) as port,
            ManagementClient([uri.parse_http(f"http://guest:guest@127.0.0.1:{port}")]) as client,
        ):
            figures, found = ClusterFigures(client), []
            for change in ({}, *changes):
                self.answers |= change
                found.append((await figures.look(["v"]))["v", "q"])
            return found


def test_a_queue() -> None:
    [found] = asyncio.run(Broker().looks())
    assert (found.messages, found.unacknowledged, found.entered) == (3, 2, 5)
    assert (found.delivered, found.redelivered, found.acknowledged) == (4, 1, 3)


def test_a_queue_without_traffic_has_counted_nothing() -> None:
    _, found = asyncio.run(Broker().looks({"queues/v": [QUEUE]}))
    assert (found.entered, found.acknowledged) == (0, 0)


@pytest.mark.parametrize("key", ["disable_stats", "rates_mode"])
def test_a_broker_that_counts_nothing(key: str) -> None:
    value = True if key == "disable_stats" else "none"
    _, found = asyncio.run(Broker().looks({"overview": {**OVERVIEW, key: value}}))
    assert (found.messages, found.entered, found.acknowledged) == (3, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": [{"name": "a", "running": True, "uptime": 999}]},
        {"nodes": [{"name": "a", "running": True, "uptime": 2_000}, {"name": "b", "running": True, "uptime": 1}]},
        {"queues/v": [{**QUEUE, "node": "b"}]},
        {"queues/v": [{**QUEUE, "leader": "b"}]},
        {"queues/v": [{**QUEUE, "state": "down"}]},
        {"queues/v": [{**QUEUE, "state": ["running"]}]},
    ],
)
def test_what_makes_another_queue_of_it(change: dict[str, Any]) -> None:
    first, second = asyncio.run(Broker().looks(change))
    assert first.identity != second.identity


def test_a_long_leader_is_cut() -> None:
    _, found = asyncio.run(Broker().looks({"queues/v": [{**QUEUE, "leader": "x" * 1_000_000}]}))
    assert len(found.identity) < 300


def test_the_same_queue_a_moment_later() -> None:
    nodes = [{"name": "a", "running": True, "uptime": 2_000}, {"name": "b", "running": False}]
    first, second = asyncio.run(Broker().looks({"nodes": nodes, "queues/v": [{**QUEUE, "state": "flow"}]}))
    assert first.identity == second.identity


def test_a_queue_that_was_down_is_another_one() -> None:
    down = {"queues/v": [{**QUEUE, "state": "down"}]}
    first, gone, back = asyncio.run(Broker().looks(down, {"queues/v": [QUEUE]}))
    assert gone.messages is None
    assert back.messages == 3
    assert first.identity != back.identity


def test_nodes_that_do_not_say_for_how_long_they_have_run() -> None:
    with pytest.raises(TransientError):
        asyncio.run(Broker().looks({"nodes": [{"name": "a", "running": True}]}))


@pytest.mark.parametrize(
    ("takes", "vhosts", "expected"),
    [
        ([1.0, 1.0], 1, ["", ""]),
        ([1.0] * 2, 31, ["to look at all vhosts took 31 s"] * 2),
        ([9.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1, ["a list of queues took over 8 s"] * 5 + [""]),  # given again for 45 s
    ],
)
async def test_figures_that_may_be_too_old(takes: list[float], vhosts: int, expected: list[str]) -> None:
    """Each look is ten seconds after the one before."""
    broker = Broker()
    names = [f"v{number}" for number in range(vhosts)]
    broker.answers |= {f"queues/{name}": [QUEUE] for name in names}
    async with (
        served(broker.answer) as port,
        ManagementClient([uri.parse_http(f"http://guest:guest@127.0.0.1:{port}")]) as client,
    ):
        figures, found = ClusterFigures(client, lambda: broker.now), []
        for broker.takes in takes:
            await figures.look(names)
            found.append(figures.why_old)
            broker.now += 10
    assert [why.startswith(text) and bool(why) == bool(text) for why, text in zip(found, expected, strict=True)] == [
        True
    ] * len(expected)
