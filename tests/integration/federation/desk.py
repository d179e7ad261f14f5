"""Publishes and takes messages quickly, by the agent's own AMQP client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from agent.amqp.connect import Connection, connect
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, Message
from agent.amqp.wire.methods import Call
from agent.amqp.wire.properties import Properties
from agent.core.fields import EMPTY, Table
from agent.core.uri import parse

DEADLINE: Final = 40.0
QUIET: Final = 0.3  # nothing came for so long: nothing more comes
BATCH: Final = 1_000
PERSISTENT: Final = Properties(0x1000, ((0x1000, b"\x02"),))

T = TypeVar("T")


def publish(uri: str, exchange: str, key: str, bodies: Iterable[str], headers: Table = EMPTY) -> None:
    """Persistent messages, in order; returns when the broker has confirmed all of them."""
    _run(_publish(uri, exchange, key, list(bodies), headers=headers))


def take(uri: str, queue: str, count: int, deadline: float = DEADLINE) -> list[str]:
    """The bodies that come, in their order, until there are `count` and for a moment no more."""
    return [message.body.decode() for message in messages(uri, queue, count, deadline)]


def messages(uri: str, queue: str, count: int, deadline: float = DEADLINE) -> list[Message]:
    return _run(_take(uri, queue, count, deadline=deadline))


def depth(uri: str, queue: str) -> int:
    """How many messages are ready in the queue."""
    return _run(_depth(uri, queue))


def times(bodies: Iterable[str]) -> dict[str, int]:
    """How often each body came."""
    return dict(Counter(bodies))


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"{number:06}" for number in range(start, start + count)]


def furnish(uri: str, asked: Sequence[tuple[methods.Method, methods.Method, dict[str, Any]]]) -> None:
    """Many declarations at once, answered all."""
    _run(_furnish(uri, asked))


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def _opened(uri: str) -> Connection:
    return await connect(parse(uri), where="test", name="test")


async def _publish(uri: str, exchange: str, key: str, bodies: list[str], *, headers: Table) -> None:
    properties = (PERSISTENT.with_headers(headers) if headers else PERSISTENT).write()
    async with await _opened(uri) as connection:
        channel = await connection.channel()
        await channel.ask(methods.CONFIRM_SELECT, methods.CONFIRM_SELECT_OK)
        confirms = _Confirms(channel)
        for at in range(0, len(bodies), BATCH):
            for body in bodies[at : at + BATCH]:
                channel.publish(exchange, key, properties, body.encode())
            await confirms.reach(min(at + BATCH, len(bodies)))


class _Confirms:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._settled: set[int] = set()
        self._last = 0
        self._moved = asyncio.Event()
        channel.on_settled = self._settle

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while len(self._settled) < count:
                self._moved.clear()
                await self._moved.wait()

    def _settle(self, call: Call) -> None:
        assert call.method is methods.BASIC_ACK
        tag = call["delivery_tag"]
        self._settled.update(range(self._last + 1, tag + 1) if call["multiple"] else (tag,))
        while self._last + 1 in self._settled:
            self._last += 1
        self._moved.set()


async def _take(uri: str, queue: str, count: int, *, deadline: float) -> list[Message]:
    taken: list[Message] = []
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    async with await _opened(uri) as connection:
        channel = await connection.channel()
        channel.on_message = arrived.put_nowait
        consume = {"queue": queue, "consumer_tag": "test", "no_ack": True}
        await channel.ask(methods.BASIC_CONSUME, methods.BASIC_CONSUME_OK, **consume)
        end = asyncio.get_running_loop().time() + deadline
        while True:
            left = end - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(left if len(taken) < count else QUIET):
                    taken.append(await arrived.get())
            except TimeoutError:
                return taken


async def _furnish(uri: str, asked: Sequence[tuple[methods.Method, methods.Method, dict[str, Any]]]) -> None:
    async with await _opened(uri) as connection:
        channel = await connection.channel()
        for answer in [channel.ask(method, wanted, **values) for method, wanted, values in asked]:
            await answer


async def _depth(uri: str, queue: str) -> int:
    async with await _opened(uri) as connection:
        channel = await connection.channel()
        found = await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True)
        count: int = found["messages"]
        return count
