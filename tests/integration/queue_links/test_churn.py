"""Queues that programs declare for one answer each, a hundred in a second, under a policy that federates them.

FEDERATION_AGENT_CHURN_SECONDS sets for how long.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.request import urlopen

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from tests.bench.process import memory_mib
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import declare, federated, queue, upstream_consumers
from tests.lab.waiting import DEADLINE, eventually

SECONDS: Final = float(os.environ.get("FEDERATION_AGENT_CHURN_SECONDS", "5"))
RATE: Final = 100
LIVES: Final = 0.5
STEADY, REPLY = "work", "work.reply"
GROWTH: Final = 40.0  # MiB, however long it goes on
LATENCY: Final = 0.5  # of a tenth of all messages: a busy machine falls behind with all these queues
PAUSE: Final = 0.02

pytestmark = pytest.mark.timeout(400 + 2 * SECONDS)


def shown(agent: Agent, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{agent.port}{path}", timeout=DEADLINE) as answer:
        return str(answer.read().decode())


@pytest.mark.thorough
def test_short_lived_queues_leave_nothing_behind(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here, there, name=STEADY)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here, STEADY))
    asyncio.run(churn(here, there, seconds=2))  # what a first round needs is no growth
    before = memory_mib(agent.pid)
    latencies = asyncio.run(churn(here, there, seconds=SECONDS))
    eventually(lambda: len(agent.links()) == 1, what="all other links have ended")
    assert memory_mib(agent.pid) - before <= GROWTH
    assert statistics.quantiles(latencies, n=10)[0] < LATENCY
    eventually(lambda: REPLY not in shown(agent, "/metrics"), what="metrics forget links")
    assert REPLY not in shown(agent, "/api/links")

    def consumed() -> list[str]:
        names = [str(each["queue"]["name"]) for each in there.node.admin.get("consumers", there.vhost)]
        return [name for name in names if name.startswith(REPLY)]

    eventually(lambda: not consumed(), what="nobody consumes from what is gone")
    eventually(lambda: upstream_consumers(there, STEADY) == 0, what="the link that stays has left, as its user has")
    assert agent.history(*queue(here, STEADY)) == ["running"]
    assert agent.logged("unexpected error") == []


async def churn(here: Site, there: Site, *, seconds: float) -> list[float]:
    """How long messages took on the link that stays, in seconds."""
    async with (
        await aio_pika.connect(here.uri) as down,
        await aio_pika.connect(there.uri) as up,
        _stream(await up.channel(), await down.channel()) as latencies,
    ):
        channels = [await down.channel() for _ in range(4)]
        begun = time.monotonic()
        async with asyncio.TaskGroup() as living:
            for number in range(round(seconds * RATE)):
                living.create_task(_live(channels[number % 4], f"{REPLY}.{begun}.{number}"))
                await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
    return latencies


async def _live(channel: AbstractChannel, name: str) -> None:
    """As programs do that wait for a reply: the queue goes with its consumer."""
    declared = await channel.declare_queue(name, durable=False, auto_delete=True)
    tag = await declared.consume(_nothing, no_ack=True)
    await asyncio.sleep(LIVES)
    await declared.cancel(tag)


async def _nothing(_: AbstractIncomingMessage) -> None:
    pass


@asynccontextmanager
async def _stream(up: AbstractChannel, down: AbstractChannel) -> AsyncIterator[list[float]]:
    """A message every now and then on the link that stays."""
    latencies: list[float] = []

    async def take(message: AbstractIncomingMessage) -> None:
        await message.ack()
        latencies.append(time.monotonic() - float(message.body))

    async def publish() -> None:
        while True:
            stamp = aio_pika.Message(repr(time.monotonic()).encode())
            await up.default_exchange.publish(stamp, STEADY)
            await asyncio.sleep(PAUSE)

    consumed = await down.get_queue(STEADY, ensure=False)
    await consumed.consume(take)
    publishing = asyncio.create_task(publish())
    try:
        yield latencies
    finally:
        publishing.cancel()
