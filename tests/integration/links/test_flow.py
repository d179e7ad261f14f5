"""One link's messages, between connections that this test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Destination
from agent.amqp.data.splice import Counts
from agent.core.links import read_limits
from agent.core.rules.hops import Site
from agent.links.exchange.received_from import ReceivedFromHeader
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions, PathMemory
from tests.integration.amqp.links import declare, until
from tests.integration.links.flows import opened
from tests.lab.node import Node
from tests.lab.user_program import messages_async, publish_async
from tests.lab.waiting import DEADLINE

STAMP = ReceivedFromHeader(
    "amqp://there", "x", upstream=Site("there", "/"), downstream=Site("here", "/"), max_hops=1, trust_user_id=False
)


async def test_a_prefetch_is_changed_while_nothing_is_read(
    broker: Node, second_broker: Node, name: Callable[[str], str]
) -> None:
    """What else a link has to do, such as following its bindings, waits for it."""
    called = name("resized")
    async with await opened(second_broker) as up, await opened(broker) as down:
        declare(second_broker, called)
        declare(broker, called)
        options = FlowOptions(called, "link", Destination(called), exclusive=True)
        flow = Flow(options, up=up, down=down, counts=Counts(), path=PathMemory(), room=Room(0))
        await flow.start(STAMP)
        up.wire.inbound.hold(self := object())
        async with asyncio.timeout(DEADLINE):
            await flow.resize(2_000)
        up.wire.inbound.release(self)
        assert flow.prefetch == 2_000
        await publish_async(second_broker.uri(), called, "k", ["body"])
        assert [each.body for each in await messages_async(broker.uri(), called, 1)] == [b"body"]
        await until(lambda: not flow.unsettled, what="it is settled")
        await flow.close()
        await flow.leave()


async def test_a_link_that_is_careful_takes_no_more_than_it_was_given(broker: Node) -> None:
    careful = PathMemory(fruitless=read_limits.FRUITLESS)
    async with await opened(broker) as both:
        for given, taken in ((None, read_limits.CAREFUL), (1_000, read_limits.CAREFUL), (2, 2)):
            options = FlowOptions("q", "link", Destination("x"), prefetch=given, is_quorum=True)
            assert Flow(options, up=both, down=both, counts=Counts(), path=careful, room=Room(0)).prefetch == taken
