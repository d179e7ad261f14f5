"""One link's messages, between connections that this test holds."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from agent.amqp.connect import connect
from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.data.quarantined import Room
from agent.amqp.data.rewriting import Destination
from agent.amqp.data.splice import Counts, DeliveryForwarder
from agent.amqp.wire.channel import Channel
from agent.core.addresses.uri import parse
from agent.core.links import read_limits
from agent.core.model import AckMode
from agent.core.rules.hops import Site
from agent.errors import BrokerError
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


@pytest.mark.parametrize("more", [{}, {"ends_on_return": True}, {"limit": 2}, {"quarantine_after": 60.0}])
async def test_what_has_ended_is_in_no_cycle(
    broker: Node, second_broker: Node, name: Callable[[str], str], more: dict[str, Any]
) -> None:
    """Where thousands of links end at once, a collection of all their sessions would hold the loop for seconds."""

    def alive() -> int:
        return sum(isinstance(each, Flow | PublishTracker | DeliveryForwarder | Channel) for each in gc.get_objects())

    called = name("ended")
    declare(second_broker, called)
    declare(broker, called)
    options = FlowOptions(called, "link", Destination("", called), **more)
    async with await opened(second_broker) as up, await opened(broker) as down:
        gc.disable()
        try:
            before = alive()
            flow: Flow | None = Flow(options, up=up, down=down, counts=Counts(), path=PathMemory(), room=Room(0))
            assert flow is not None
            await flow.start(STAMP)
            await publish_async(second_broker.uri(), called, "k", ["body"])
            assert [each.body for each in await messages_async(broker.uri(), called, 1)] == [b"body"]
            assert alive() > before
            await flow.close()
            await flow.leave()
            flow = None
            await until(lambda: alive() == before, what="all of it is gone")
        finally:
            gc.enable()


async def test_a_link_that_is_careful_takes_no_more_than_it_was_given(broker: Node) -> None:
    careful = PathMemory(fruitless=read_limits.FRUITLESS)
    async with await opened(broker) as both:
        for given, taken in ((None, read_limits.CAREFUL), (1_000, read_limits.CAREFUL), (2, 2)):
            options = FlowOptions("q", "link", Destination("x"), prefetch=given, is_quorum=True)
            assert Flow(options, up=both, down=both, counts=Counts(), path=careful, room=Room(0)).prefetch == taken


async def test_nothing_is_taken_before_there_is_a_channel_to_publish_on_where_that_could_cost_messages(
    broker: Node, second_broker: Node, name: Callable[[str], str]
) -> None:
    """A refused channel ends the session: what was acknowledged by then would be lost, and what goes back too often is
    dropped."""
    called, admin = name("kept"), broker.admin
    declare(second_broker, called)
    await publish_async(second_broker.uri(), called, "k", ["kept"])
    admin.user(called, called)
    admin.permissions("/", called)
    admin.put("user-limits", called, "max-channels", body={"value": 0})
    for ack_mode, path, alarm in (
        (AckMode.NO_ACK, PathMemory(), None),
        (AckMode.ON_PUBLISH, PathMemory(), None),
        (AckMode.ON_CONFIRM, PathMemory(fruitless=1), None),
        (AckMode.ON_CONFIRM, PathMemory(), "memory"),
    ):
        destination = await connect(parse(broker.uri("/", called, called)), where="test", name="test")
        async with await opened(second_broker) as up, destination as down:
            down.wire.blocked = alarm
            options = FlowOptions(called, "link", Destination(called), ack_mode=ack_mode)
            flow = Flow(options, up=up, down=down, counts=Counts(), path=path, room=Room(0))
            with pytest.raises(BrokerError, match="limit"):
                await flow.start(STAMP)
            await flow.leave()
    [message] = await messages_async(second_broker.uri(), called, 1)
    assert (message.body, message.redelivered) == (b"kept", False)
    admin.delete("users", called)
