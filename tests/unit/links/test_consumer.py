"""What a consumer asks of its broker, and when: between wires that keep what is written."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import pytest

from agent.amqp.connect import Connection, Server
from agent.amqp.data.rewriting import Destination, Untouched
from agent.amqp.data.splice import Counts
from agent.amqp.wire import frames, methods
from agent.amqp.wire.login import Terms
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism, parse
from agent.core.model import AckMode
from agent.errors import BrokerError
from agent.links.consumer import BETWEEN_LOOKS, Consumer
from agent.links.flow_options import FlowOptions, PathMemory
from agent.links.read_limits import Window
from tests.unit.amqp.wire.link import Link, Sent, calls, feed, turn

TERMS = Terms("upstream origin", "/", "u", Secret("p"), (Mechanism.PLAIN,), 0)


@dataclass
class Scene:
    link: Link
    consumer: Consumer
    window: Window

    @classmethod
    async def made(
        cls, *, ack_mode: AckMode = AckMode.ON_CONFIRM, limit: int | None = None, server: Server | None = None
    ) -> Scene:
        """`server` has the source, a quorum queue then."""
        link = await Link.made(rewriter=Untouched(), limit=limit, ack_mode=ack_mode)
        options = FlowOptions(
            "q", "tag", Destination("x"), ack_mode=ack_mode, limit=limit, is_quorum=server is not None
        )
        window = Window(options, PathMemory(), Counts(), link.clock, for_unpublishable=0)
        up = Connection(parse("amqp://h"), link.upstream, TERMS)
        up.server = server or up.server
        consumer = Consumer(options, window, up=up, out=link.out, source=link.source, target=link.target)
        link.source.on_exhausted = consumer.step
        return cls(link, consumer, window)

    def asked(self) -> list[str]:
        """Since this was asked last."""
        return [method.name for _, method, _ in calls(self.link.up.taken())]

    async def answer(self, method: methods.Method, **values: Any) -> None:
        feed(self.link.upstream, frames.frame(frames.METHOD, self.link.out.number, method.encode(**values)))
        await turn()

    async def begun(self) -> None:
        beginning = asyncio.create_task(self.consumer.begin())
        await turn()
        for answer in (methods.BASIC_QOS_OK, methods.BASIC_CONSUME_OK):
            await self.answer(answer)
        await beginning
        self.asked()


async def test_a_consumer_that_is_not_known_yet_is_cancelled_once_it_is() -> None:
    scene = await Scene.made()
    beginning = asyncio.create_task(scene.consumer.begin())
    await turn()
    pausing = asyncio.create_task(scene.consumer.pause())
    await turn()
    assert scene.asked() == ["Basic.Qos", "Basic.Consume"]
    await scene.answer(methods.BASIC_QOS_OK)
    await scene.answer(methods.BASIC_CONSUME_OK)
    await beginning
    assert scene.asked() == ["Basic.Cancel"]
    assert not pausing.done()
    await scene.answer(methods.BASIC_CANCEL_OK)
    await pausing


async def test_who_resumes_before_the_answer_needs_no_other_consumer() -> None:
    scene = await Scene.made()
    beginning = asyncio.create_task(scene.consumer.begin())
    await turn()
    pausing = asyncio.create_task(scene.consumer.pause())
    await turn()
    resuming = asyncio.create_task(scene.consumer.begin())
    await turn()
    await scene.answer(methods.BASIC_QOS_OK)
    await scene.answer(methods.BASIC_CONSUME_OK)
    await asyncio.gather(beginning, pausing, resuming)
    assert scene.asked() == ["Basic.Qos", "Basic.Consume"]


async def test_who_resumes_while_the_end_is_awaited_gets_a_consumer_with_another_tag() -> None:
    scene = await Scene.made()
    await scene.begun()
    pausing = asyncio.create_task(scene.consumer.pause())
    await turn()
    resuming = asyncio.create_task(scene.consumer.begin())
    await turn()
    written = calls(scene.link.up.taken())
    assert [method.name for _, method, _ in written] == ["Basic.Cancel", "Basic.Qos", "Basic.Consume"]
    assert [dict(method)["consumer_tag"] for _, method, _ in written[::2]] == ["tag", "tag 2"]
    for answer in (methods.BASIC_CANCEL_OK, methods.BASIC_QOS_OK, methods.BASIC_CONSUME_OK):
        await scene.answer(answer)
    await asyncio.gather(pausing, resuming)
    assert scene.consumer.is_consuming


@pytest.mark.parametrize("moment", ["asked", "consuming", "pausing", "paused"])
async def test_nothing_is_asked_on_a_channel_that_is_closed(moment: str) -> None:
    scene = await Scene.made()
    tasks = []
    if moment == "asked":
        tasks.append(asyncio.create_task(scene.consumer.begin()))
        await turn()
    else:
        await scene.begun()
    if moment in {"pausing", "paused"}:
        tasks.append(asyncio.create_task(scene.consumer.pause()))
        await turn()
    if moment == "paused":
        await scene.answer(methods.BASIC_CANCEL_OK)
    await scene.answer(methods.CHANNEL_CLOSE, code=404, text="NOT_FOUND - no queue 'q'")
    scene.link.up.taken()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, BrokerError)
    await scene.consumer.pause()
    await scene.consumer.resize(5)
    if moment != "asked":
        await scene.consumer.begin()
    scene.consumer.give_back()
    assert scene.asked() == []
    assert not scene.consumer.is_consuming


QUORUM = Server("RabbitMQ", "4.3.6", None)


async def test_one_of_a_quorum_queue_is_replaced_once_all_has_come_that_it_may_have_unacknowledged() -> None:
    """Also where one message stays and those behind it are acknowledged singly: others come for them."""
    scene = await Scene.made(server=QUORUM)
    await scene.begun()
    link, prefetch = scene.link, scene.window.current
    await link.deliver(*(Sent(tag) for tag in range(1, 12)))
    await link.answer(methods.BASIC_NACK, delivery_tag=1)
    await link.answer(methods.BASIC_ACK, delivery_tag=11, multiple=True)
    assert [dict(method)["delivery_tag"] for method in link.settled()] == [*range(2, 12)]
    resizing = asyncio.create_task(scene.consumer.resize(5_000))
    await link.deliver(*(Sent(tag) for tag in range(12, prefetch + 10)))
    await asyncio.sleep(2 * BETWEEN_LOOKS)
    assert scene.asked() == []  # one more is on its way
    await link.deliver(Sent(prefetch + 10))
    await asyncio.sleep(2 * BETWEEN_LOOKS)
    assert scene.asked() == ["Basic.Cancel", "Basic.Qos", "Basic.Consume"]
    await resizing


async def test_nothing_is_resized_while_it_is_paused_and_a_pause_in_between_counts() -> None:
    scene = await Scene.made()
    await scene.begun()
    pausing = asyncio.create_task(scene.consumer.pause())
    await turn()
    await scene.consumer.resize(5_000)
    assert scene.asked() == ["Basic.Cancel"]
    await scene.answer(methods.BASIC_CANCEL_OK)
    await pausing
    assert scene.asked() == []


async def test_where_nothing_is_acknowledged_no_prefetch_is_set() -> None:
    scene = await Scene.made(ack_mode=AckMode.NO_ACK)
    beginning = asyncio.create_task(scene.consumer.begin())
    await turn()
    assert scene.asked() == ["Basic.Consume"]
    await scene.answer(methods.BASIC_CONSUME_OK)
    await beginning


async def test_a_consumer_ends_when_all_that_may_be_taken_is_here_and_comes_back_for_more() -> None:
    scene = await Scene.made(limit=1)
    await scene.begun()
    await scene.link.deliver(Sent(1))
    assert scene.asked() == ["Basic.Cancel"]
    scene.link.source.allow(1)
    scene.consumer.step()
    assert scene.asked() == ["Basic.Qos", "Basic.Consume"]


async def test_giving_back_after_the_permit_has_ended_ends_the_connection_and_raises_nothing() -> None:
    scene = await Scene.made(server=Server("RabbitMQ", "4.3.6", None))
    await scene.begun()
    scene.link.upstream.permit.until = -math.inf
    scene.consumer.give_back()
    assert scene.link.upstream.closed.done() and scene.asked() == []
