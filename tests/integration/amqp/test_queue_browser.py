"""Looking at the messages of a queue without taking them."""

from __future__ import annotations

import aio_pika
import pytest

from agent.amqp.queue_messages import browse
from tests.integration.amqp.conftest import Connecting
from tests.lab.node import Node
from tests.lab.waiting import eventually_async

HEADER = "h" * 10_000
COUNT = 5


async def fill(broker: Node, vhost: str, **headers: str) -> None:
    """The queue `held` with messages that are numbers."""
    broker.admin.queue(vhost, "held")
    async with await aio_pika.connect(broker.uri(vhost)) as publishing:
        exchange = (await publishing.channel()).default_exchange
        for number in range(COUNT):
            await exchange.publish(aio_pika.Message(str(number).encode(), headers=dict(headers)), "held")


@pytest.mark.parametrize(("room", "seen"), [(25_000, 2), (1_000_000, COUNT)])
async def test_what_does_not_fit_stays_where_it_is(
    broker: Node, vhost: str, connecting: Connecting, room: int, seen: int
) -> None:
    await fill(broker, vhost, h=HEADER)
    connection = await connecting(broker.uri(vhost))
    come = 0

    def wants(_: bytes) -> bool:
        nonlocal come
        come += 1
        return True

    async with browse(connection, "held", wants=wants, room=room) as held:

        async def have_come() -> bool:
            return held.has_more or come == COUNT

        await eventually_async(have_come, what="they have come")
        assert [(each.body or b"").decode() async for each in held] == [str(number) for number in range(seen)]
        assert held.has_more == (seen < COUNT)


async def test_what_another_connection_holds_is_no_rest(broker: Node, vhost: str, connecting: Connecting) -> None:
    """As where two addresses lead to one broker."""
    await fill(broker, vhost)
    first, second = await connecting(broker.uri(vhost)), await connecting(broker.uri(vhost))
    async with browse(first, "held", wants=lambda _: True, most=3) as held:
        assert [each.body async for each in held] == [b"0", b"1", b"2"]
        assert await held.has_rest()
        async with browse(second, "held", wants=lambda _: True, most=3) as others:
            assert [each.body async for each in others] == [b"3", b"4"]
            assert not await others.has_rest()
            assert not await held.has_rest()


async def test_only_what_is_acknowledged_is_gone(broker: Node, vhost: str, connecting: Connecting) -> None:
    """A quarantine has messages of several links; to drop those of one leaves the others', also those before them."""
    await fill(broker, vhost)
    connection = await connecting(broker.uri(vhost))
    async with browse(connection, "held", wants=lambda _: True) as held:
        tags = [each.tag async for each in held]
        for tag in (tags[1], tags[3]):
            held.acknowledge(tag)
    async with browse(connection, "held", wants=lambda _: True) as held:
        assert [each.body async for each in held] == [b"0", b"2", b"4"]
