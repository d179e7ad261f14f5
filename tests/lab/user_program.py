"""What users' programs do with a broker: publish with confirms, consume, look how much waits in a queue.

All of it goes through aio-pika, which shares no code with the agent. With the agent's own client at both ends of a
test, an error in its codec could go unseen.

aio-pika can't name upstream queues: pamqp, which encodes its frames, refuses names with characters such as `>`
("federation: X -> CN"). Use the HTTP API where a test needs those (`Site.wait_depth`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import aio_pika
import uvloop
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage, HeadersType
from pamqp.commands import Basic, Queue

from tests.lab.waiting import DEADLINE

QUIET: Final = 0.3  # nothing came for so long: nothing more comes
BATCH: Final = 1_000

T = TypeVar("T")


def publish(
    uri: str, exchange: str, key: str, bodies: Iterable[str | bytes], headers: HeadersType | None = None
) -> int:
    """Publishes persistent messages in order. Returns when all are confirmed: how many the broker routed to a queue."""
    return _run(publish_async(uri, exchange, key, bodies, headers))


def take(uri: str, queue: str, count: int, deadline: float = DEADLINE) -> list[str]:
    """The bodies of `messages`."""
    return [message.body.decode() for message in messages(uri, queue, count, deadline)]


def messages(uri: str, queue: str, count: int, deadline: float = DEADLINE) -> list[AbstractIncomingMessage]:
    """Takes messages in order, until there are `count` and no more come for a moment, or until the deadline."""
    return _run(messages_async(uri, queue, count, deadline))


def depth(uri: str, queue: str) -> int:
    """How many messages are ready in the queue."""
    return _run(depth_async(uri, queue))


def consumers(uri: str, queue: str) -> int:
    """How many consume from the queue."""
    return _run(consumers_async(uri, queue))


def times(bodies: Iterable[str]) -> dict[str, int]:
    """How often each body came."""
    return dict(Counter(bodies))


def numbered(count: int, start: int = 0) -> list[str]:
    """Bodies that sort in the order of their numbers."""
    return [f"{number:06}" for number in range(start, start + count)]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: in the caller's, Playwright's event loop may be running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(uvloop.run, work).result()


async def publish_async(
    uri: str, exchange: str, key: str, bodies: Iterable[str | bytes], headers: HeadersType | None = None
) -> int:
    waiting = [body.encode() if isinstance(body, str) else body for body in bodies]
    routed = 0
    async with await aio_pika.connect(uri) as connection:
        channel = await connection.channel(publisher_confirms=True)
        to = await channel.get_exchange(exchange, ensure=False)
        for at in range(0, len(waiting), BATCH):
            batch = waiting[at : at + BATCH]
            async with asyncio.timeout(DEADLINE):
                routed += sum(await asyncio.gather(*(_publish(to, key, body, headers) for body in batch)))
    return routed


async def _publish(to: AbstractExchange, key: str, body: bytes, headers: HeadersType | None) -> bool:
    """Whether the message was routed. A broker's refusal is aio-pika's DeliveryError."""
    message = aio_pika.Message(body, headers=headers, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    return isinstance(await to.publish(message, key, mandatory=True), Basic.Ack)


async def messages_async(uri: str, queue: str, count: int, deadline: float = DEADLINE) -> list[AbstractIncomingMessage]:
    taken: list[AbstractIncomingMessage] = []
    arrived = asyncio.Event()

    async def take(message: AbstractIncomingMessage) -> None:
        taken.append(message)
        arrived.set()

    async with await aio_pika.connect(uri) as connection:
        channel = await connection.channel()
        consumed = await channel.get_queue(queue, ensure=False)
        tag = await consumed.consume(take, no_ack=True)
        end = asyncio.get_running_loop().time() + deadline
        while True:
            left = end - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(left if len(taken) < count else QUIET):
                    await arrived.wait()
            except TimeoutError:
                await consumed.cancel(tag)  # what the broker sent before its answer is taken, too, and would be lost
                return taken
            arrived.clear()


async def depth_async(uri: str, queue: str) -> int:
    return (await _declared(uri, queue)).message_count or 0


async def consumers_async(uri: str, queue: str) -> int:
    return (await _declared(uri, queue)).consumer_count or 0


async def _declared(uri: str, queue: str) -> Queue.DeclareOk:
    async with await aio_pika.connect(uri) as connection:
        channel = await connection.channel()
        return (await channel.declare_queue(queue, passive=True)).declaration_result
