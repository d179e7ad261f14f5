"""A process that makes load or watches: told what by its arguments, and when by lines of JSON on its standard input.

Each line is `{"do": NAME, …}` and is answered by one line. Times are those of CLOCK_MONOTONIC, which all processes of a
machine share. The end of the input is the end of the process.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop
from pamqp import commands

from tests.bench.client import (
    BODY,
    HEADER,
    METHOD,
    Connection,
    Progress,
    Publisher,
    bound,
    consume,
    count_deliveries,
    opened,
)

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
CONSUMER: Final = "consumer.created"
STAMP: Final = struct.Struct(">d")
TO_AN_EXCHANGE: Final = b"\x10destination_kindS\x00\x00\x00\x08exchange"

Obey = Callable[[dict[str, Any]], Awaitable[object]]


class Publishing:
    """`publish`: as fast as the window of unconfirmed messages allows."""

    def __init__(self, publisher: Publisher, exchange: str, key: str) -> None:
        self._publisher = publisher
        self._exchange = exchange
        self._key = key

    @classmethod
    async def begin(cls, uri: str, exchange: str, key: str) -> Obey:
        return cls(await Publisher.on(await opened(uri)), exchange, key).obey

    async def obey(self, told: dict[str, Any]) -> object:
        message = self._publisher.message(self._exchange, self._key, bytes(told["size"]), told.get("headers"))
        began = time.monotonic()
        await self._publisher.publish(message, count=told["count"], window=told["window"])
        return {"began": began, "ended": time.monotonic()}


class Consuming:
    """`count`: waits for so many messages."""

    def __init__(self, delivered: Progress) -> None:
        self._delivered = delivered

    @classmethod
    async def begin(cls, uri: str, queue: str) -> Obey:
        return cls(await count_deliveries(await opened(uri), queue)).obey

    async def obey(self, told: dict[str, Any]) -> object:
        await self._delivered.reach(told["count"])
        return {"first": self._delivered.first, "last": self._delivered.last, "count": self._delivered.count}


class Trickling:
    """Stamped messages at a steady rate, and when they arrive: both ends in one process."""

    def __init__(self, publisher: Publisher, exchange: str, key: str) -> None:
        self._publisher = publisher
        message = publisher.message(exchange, key, bytes(STAMP.size))
        self._before, self._after = message[: -STAMP.size - 1], message[-1:]
        self._latencies: list[float] = []
        self._newest = 0.0
        self._progress = Progress()
        self._background: asyncio.Task[None] | None = None

    @classmethod
    async def begin(cls, up: str, exchange: str, key: str, down: str, queue: str) -> Obey:
        made = cls(await Publisher.on(await opened(up)), exchange, key)
        await consume(await opened(down), queue, made._took)
        return made.obey

    async def obey(self, told: dict[str, Any]) -> object:
        match told["do"]:
            case "latency":
                self._latencies.clear()
                wanted = self._progress.count + told["count"]
                await self._publish(told["rate"], told["count"])
                await self._progress.reach(wanted)
                return {"seconds": self._latencies}
            case "start":
                self._background = asyncio.create_task(self._publish(told["rate"], sys.maxsize))
                return {}
            case "after":
                return {"at": await self._arrival_of_newer(told["time"])}
        raise ValueError(f"no such command: {told['do']}")

    async def _publish(self, rate: float, count: int) -> None:
        begun = time.monotonic()
        for number in range(count):
            await asyncio.sleep(begun + number / rate - time.monotonic())
            self._publisher.send(self._before + STAMP.pack(time.monotonic()) + self._after)

    async def _arrival_of_newer(self, stamp: float) -> float:
        while self._newest <= stamp:
            await self._progress.reach(self._progress.count + 1)
        return self._progress.last

    def _took(self, kind: int, payload: bytes) -> None:
        if kind == BODY and len(payload) == STAMP.size:
            stamp = STAMP.unpack(payload)[0]
            self._newest = max(self._newest, stamp)
            self._latencies.append(time.monotonic() - stamp)
            self._progress.add(1)


class Watching:
    """Counts what a broker tells of one vhost: bindings between exchanges, and consumers."""

    def __init__(self, vhost: str) -> None:
        self._vhost = vhost.encode()
        self._bindings = Progress()
        self._consumers = Progress()
        self._of_consumers = False  # the event whose content comes next
        self._downstream: Connection | None = None

    @classmethod
    async def begin(cls, uri: str, vhost: str) -> Obey:
        made = cls(vhost)
        connection = await opened(uri)
        [declared] = await connection.ask(commands.Queue.Declare(exclusive=True))
        assert isinstance(declared, commands.Queue.DeclareOk) and declared.queue
        await connection.ask(*(bound(EVENT_EXCHANGE, declared.queue, key) for key in ("binding.created", CONSUMER)))
        await consume(connection, declared.queue, made._took)
        return made.obey

    async def obey(self, told: dict[str, Any]) -> object:
        match told["do"]:
            case "wait":
                await self._bindings.reach(told["bindings"])
                await self._consumers.reach(told["consumers"])
                return {"at": max(self._bindings.last, self._consumers.last), "bindings": self._bindings.count}
            case "count":
                at = max(self._bindings.last, self._consumers.last)
                return {"at": at, "bindings": self._bindings.count, "consumers": self._consumers.count}
            case "late":
                return {"seconds": await self._bind_late(**told["binding"])}
        raise ValueError(f"no such command: {told['do']}")

    async def _bind_late(self, uri: str, exchange: str, queue: str, key: str, links: int = 1) -> float:
        """Until so many links have copied the binding."""
        if self._downstream is None:
            self._downstream = await opened(uri)
        wanted = self._bindings.count + links
        begun = time.monotonic()
        await self._downstream.ask(bound(exchange, queue, key))
        await self._bindings.reach(wanted)
        return self._bindings.last - begun

    def _took(self, kind: int, payload: bytes) -> None:
        if kind == METHOD:
            self._of_consumers = payload.endswith(CONSUMER.encode())
        elif kind == HEADER and self._vhost in payload:
            if self._of_consumers:
                self._consumers.add(1)
            elif TO_AN_EXCHANGE in payload:
                self._bindings.add(1)


KINDS: Final[dict[str, Callable[..., Awaitable[Obey]]]] = {
    "publish": Publishing.begin,
    "consume": Consuming.begin,
    "trickle": Trickling.begin,
    "watch": Watching.begin,
}


async def serve(kind: str, *arguments: str) -> None:
    obey = await KINDS[kind](*arguments)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    answer({"ready": True})
    while line := await orders.readline():
        answer(await obey(json.loads(line)))


def answer(content: object) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
