"""What the proof of a trim needs of brokers: each message that enters, and each that is delivered again, is counted,
even if the channel ends at once; and the order in which a copy is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aio_pika
import pytest

from agent.core.standby.terms import FEWEST
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE, eventually

BROKERS: Final = [pytest.param(None, id="own"), pytest.param("sid", id="sid", marks=pytest.mark.versions)]
KINDS: Final = ("classic", "quorum")
MANY: Final = 90


@pytest.fixture(params=BROKERS)
def at(broker_on: Callable[..., Node], request: pytest.FixtureRequest) -> Node:
    return broker_on(request.param)


def figures(node: Node, vhost: str, queue: str) -> dict[str, int]:
    answer: dict[str, Any] = node.admin.get("queues", vhost, queue)
    stats = answer.get("message_stats", {})
    names = ("messages", "messages_ready", "messages_unacknowledged")
    return {name: answer.get(name, 0) for name in names} | {
        name: stats.get(name, 0) for name in ("publish", "deliver_get", "redeliver", "ack")
    }


@pytest.mark.thorough
async def test_all_is_counted_though_channels_end_at_once(at: Node, name: Callable[[str], str]) -> None:
    with at.admin.temporary_vhost(name("counted")) as vhost:
        at.admin.exchange(vhost, "x", "fanout")
        for kind in KINDS:
            at.admin.queue(vhost, kind, arguments={"x-queue-type": kind})
            at.admin.bind(vhost, "x", kind)
        for _ in range(3):
            await _publish(at, vhost, MANY // 3)
        await _deliver(at, vhost)
        expected = {"messages": MANY, "messages_ready": MANY, "messages_unacknowledged": 0}
        expected |= {"publish": MANY, "redeliver": 0, "deliver_get": MANY, "ack": 0}
        await _shown(at, vhost, expected)
        await _deliver(at, vhost)  # again, as the channel ended
        await _shown(at, vhost, expected | {"redeliver": MANY, "deliver_get": 2 * MANY})
        await _deliver(at, vhost, nack=True)
        await _shown(at, vhost, expected | {"redeliver": 2 * MANY, "deliver_get": 3 * MANY})
        await _deliver(at, vhost, nack=True)
        await _shown(at, vhost, expected | {"redeliver": 3 * MANY, "deliver_get": 4 * MANY})


async def _publish(at: Node, vhost: str, count: int) -> None:
    async with await aio_pika.connect(at.uri(vhost)) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange("x")
        for number in range(count):
            await exchange.publish(aio_pika.Message(str(number).encode()), "")
        await channel.close()


async def _deliver(at: Node, vhost: str, *, nack: bool = False) -> None:
    """All of each queue are delivered; then they are returned, or the channel ends."""
    for queue in KINDS:
        await _deliver_of(at, vhost, queue, nack=nack)


async def _deliver_of(at: Node, vhost: str, name: str, *, nack: bool) -> None:
    async with await aio_pika.connect(at.uri(vhost)) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=MANY)
        queue = await channel.get_queue(name)
        complete = asyncio.Event()
        got: list[aio_pika.abc.AbstractIncomingMessage] = []

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            got.append(message)
            if len(got) == MANY:
                complete.set()

        tag = await queue.consume(take)
        async with asyncio.timeout(DEADLINE):
            await complete.wait()
        if nack:
            await queue.cancel(tag)
            for message in got:
                await message.nack(requeue=True)
        await channel.close()


async def _shown(at: Node, vhost: str, expected: dict[str, int]) -> None:
    """Brokers report every few seconds."""

    def are_shown() -> bool:
        return all(figures(at, vhost, queue) == expected for queue in KINDS)

    await asyncio.to_thread(eventually, are_shown, what=f"figures {expected}")


@pytest.mark.versions
@pytest.mark.parametrize("release", ["trixie", "sid"])
async def test_a_priority_shows_among_the_first_three(
    broker_on: Callable[..., Node], release: str, name: Callable[[str], str]
) -> None:
    """Quorum queues have them without being declared so. A queue that shows none is in the order of what entered."""
    at = broker_on(release)
    with at.admin.temporary_vhost(name("order")) as vhost:
        async with await aio_pika.connect(at.uri(vhost)) as connection:
            channel = await connection.channel()
            for priority in (1, 4, 5, 9, 255):
                at.admin.queue(vhost, queue_name := f"q{priority}", arguments={"x-queue-type": "quorum"})
                for number in range(9):
                    given = priority if number == 6 else (None, 0)[number % 2]
                    message = aio_pika.Message(b"%d" % number, priority=given)
                    await channel.default_exchange.publish(message, queue_name)
                queue = await channel.get_queue(queue_name)
                order = [int((await queue.get(no_ack=True)).body) for _ in range(9)]
                assert order == list(range(9)) or 6 in order[:FEWEST], (priority, order)
