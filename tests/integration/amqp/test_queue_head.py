"""Messages that are held at the head of a queue, and who else consumes from it."""

from __future__ import annotations

from collections.abc import Callable

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from agent.amqp import queue_messages
from agent.amqp.connect import connect_any
from agent.amqp.queue_messages import QueueHead
from agent.core.addresses.uri import parse
from tests.lab.node import Node
from tests.lab.waiting import eventually_async

BROKERS = [pytest.param(None, id="own"), pytest.param("sid", id="sid", marks=pytest.mark.versions)]


async def _hold(_: AbstractIncomingMessage) -> None:
    """Neither acknowledges nor returns it."""


@pytest.mark.parametrize("release", BROKERS)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_who_holds_messages_is_alone_until_somebody_else_consumes(
    broker_on: Callable[..., Node],
    release: str | None,
    kind: str,
    name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_messages, "PORTION", 4)
    at = broker_on(release)
    with at.admin.temporary_vhost(name("head")) as vhost:
        at.admin.queue(vhost, "q", arguments={"x-queue-type": kind})
        async with await aio_pika.connect(at.uri(vhost)) as user:
            channel = await user.channel()
            for number in range(10):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), "q")
            connection = await connect_any([parse(at.uri(vhost))], where="broker", name=name("head"))
            head = QueueHead(connection, "q")
            assert await head.is_alone()
            await head.hold(9)
            assert head.held == 9
            assert await head.is_alone()
            head.acknowledge(5)
            await eventually_async(head.is_alone, what="it is alone once its acknowledgements have come")
            head.acknowledge(3)  # one is left of the last portion
            await eventually_async(head.is_alone, what="it is still alone")
            queue = await channel.get_queue("q")
            tag = await queue.consume(_hold)
            assert not await head.is_alone()
            await queue.cancel(tag)
            await head.close()
            await connection.close()
