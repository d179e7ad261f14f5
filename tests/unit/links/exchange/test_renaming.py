"""What follows where the downstream has another name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from agent.amqp.connect import connect
from agent.amqp.wire import methods
from agent.core.addresses.uri import parse
from agent.core.links.lifecycle import LinkState, Phase
from agent.core.model import Link
from agent.links.brokers import Brokers
from agent.links.exchange.removal import UNUSED_WITHIN, sweep
from tests.simulation.broker.exchanges import Exchange
from tests.simulation.broker.queues import Queue
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.core.some_links import exchange_link
from tests.unit.model_brokers import THERE, Models, among_models

HOUR = 3600.0
URI = parse(f"amqp://{THERE}")
QUEUE = "federation: x -> former"
INTERNAL = f"{QUEUE} A"


@dataclass
class Standby:
    link: Link = field(default_factory=exchange_link)
    finished: asyncio.Future[None] = field(default_factory=asyncio.Future)
    looks: int = 0

    @property
    def state(self) -> LinkState:
        self.looks += 1
        return LinkState(started=True, standby="agent b runs this link")

    @state.setter
    def state(self, value: LinkState) -> None:
        raise NotImplementedError


def test_a_link_that_another_agent_runs_is_seldom_looked_at() -> None:
    async def live() -> None:
        runner = Standby()
        sweeping = asyncio.ensure_future(sweep([runner], Brokers((), "new", stall_after=30), "former"))
        await asyncio.sleep(HOUR)
        assert 0 < runner.looks < HOUR / 20
        runner.finished.set_result(None)
        await asyncio.wait_for(sweeping, HOUR)

    in_virtual_time(live())


@dataclass
class Running:
    link: Link
    state: LinkState = field(default_factory=lambda: LinkState(phase=Phase.OPEN, started=True))
    finished: asyncio.Future[None] = field(default_factory=asyncio.Future)


@pytest.mark.parametrize(("used_for", "stays"), [(0.0, False), (UNUSED_WITHIN / 2, False), (2 * UNUSED_WITHIN, True)])
def test_what_another_cluster_serves_under_the_former_name_stays(*, used_for: float, stays: bool) -> None:
    """A consumer that goes in time was this agent's own, before it lost the connection."""

    async def live(models: Models) -> None:
        broker = models.broker(THERE)
        broker.make_queue(Queue(QUEUE, durable=True))
        broker.routing.exchanges[INTERNAL] = Exchange(INTERNAL, "fanout", durable=True)
        link = replace(exchange_link(), uris=(URI,))
        async with await connect(URI, where="another cluster", name="another") as other:
            if used_for:
                channel = await other.channel()
                await channel.ask(methods.BASIC_CONSUME, queue=QUEUE)
                asyncio.get_running_loop().call_later(used_for, channel.leave)
            await sweep([Running(link)], Brokers((URI,), "new", stall_after=30), "former")
            assert (INTERNAL in broker.routing.exchanges) is (QUEUE in broker.queues) is stays

    among_models(live)


def test_what_is_under_a_name_that_the_downstream_has_again_stays() -> None:
    """Its links use it."""

    async def live(models: Models) -> None:
        broker = models.broker(THERE)
        broker.make_queue(Queue(QUEUE, durable=True))
        broker.routing.exchanges[INTERNAL] = Exchange(INTERNAL, "fanout", durable=True)
        link, brokers = replace(exchange_link(), uris=(URI,)), Brokers((URI,), "new", stall_after=30)
        async with await connect(URI, where="upstream origin", name="this agent, a moment ago") as former:
            channel = await former.channel()
            await channel.ask(methods.BASIC_CONSUME, queue=QUEUE)
            sweeping = asyncio.ensure_future(sweep([Running(link)], brokers, "former"))
            await asyncio.sleep(UNUSED_WITHIN / 2)
            brokers.cluster = "former"
            channel.leave()
            await sweeping
        assert INTERNAL in broker.routing.exchanges and QUEUE in broker.queues

    among_models(live)
