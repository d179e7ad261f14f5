"""By aio-pika: a task for each message, and connections that come back by themselves."""

from __future__ import annotations

import asyncio

from aio_pika import connect_robust
from aio_pika.abc import AbstractIncomingMessage

from tests.bench.peers.window import PREFETCH


def move(source: str, destination: str, queue: str) -> None:
    asyncio.run(_move(source, destination, queue))


async def _move(source: str, destination: str, queue: str) -> None:
    async with await connect_robust(source) as up, await connect_robust(destination) as down:
        incoming, outgoing = await up.channel(), await down.channel(publisher_confirms=True)
        await incoming.set_qos(prefetch_count=PREFETCH)

        async def forward(message: AbstractIncomingMessage) -> None:
            async with message.process(requeue=True):
                await outgoing.default_exchange.publish(message, queue, mandatory=True)

        await (await incoming.get_queue(queue)).consume(forward)
        await asyncio.Future()
