"""A shop that moves: its definitions, and users' programs on both clusters, with the account of what they published and
took."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

import aio_pika
import uvloop
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from pamqp import commands

from tests.bench.client import BODY, Connection, Publisher, consume, opened
from tests.lab.admin import Admin
from tests.lab.waiting import DEADLINE

T = TypeVar("T")
ROUTED: Final = tuple(f"x{number}" for number in range(27))
EXCHANGES: Final = (*ROUTED, "dlx", "ae", "spare")
QUEUES: Final = (
    *(f"orders.{number}" for number in range(60)),
    *(f"mirrored.{number}" for number in range(10)),
    *(f"quorum.{number}" for number in range(6)),
    *(f"rpc.{number}" for number in range(12)),
    "dead",
    "unrouted",
)
BEHIND: Final = ("dead", "unrouted")
"""Dead letters, and what no queue took."""
DEEP: Final = {"orders.0": 9_000, "orders.1": 7_000, "orders.2": 5_000, "mirrored.0": 3_000, "quorum.0": 3_000}
SHALLOW: Final = 100
NOWHERE: Final = 40
"""Of so many messages one is for no queue, and goes by the alternate exchange."""
REJECTED: Final = 20
"""Of so many messages that are taken at the source one is rejected, and dies."""
AT_ONCE: Final = 1_000
FRAME_END: Final = b"\xce"
AGAIN: Final = 0.2


def furnish(admin: Admin, vhost: str) -> None:
    """In one request: as brokers import definitions."""
    dies = {"dead-letter-exchange": "dlx"}
    policies = {
        "dying": ("^(orders|quorum)", "queues", dies),
        "mirrors": ("^mirrored", "queues", {"ha-mode": "all", "ha-sync-mode": "automatic", **dies}),
        "alternate": ("^x", "exchanges", {"alternate-exchange": "ae"}),
    }
    kinds = {name: "topic" if name in ROUTED else "fanout" for name in EXCHANGES}
    bound = [(ROUTED[number % len(ROUTED)], name, name) for number, name in enumerate(QUEUES[:-2])]
    admin.post(
        "definitions",
        vhost,
        body={
            "exchanges": [
                {"name": name, "type": kind, "durable": True, "auto_delete": False, "internal": False, "arguments": {}}
                for name, kind in kinds.items()
            ],
            "queues": [{"name": name, "durable": True, "auto_delete": False, **_type(name)} for name in QUEUES],
            "bindings": [
                {"source": of, "destination": to, "destination_type": "queue", "routing_key": key, "arguments": {}}
                for of, to, key in [*bound, ("dlx", "dead", ""), ("ae", "unrouted", "")]
            ],
            "policies": [
                {"name": name, "pattern": pattern, "apply-to": of, "definition": what, "priority": 0}
                for name, (pattern, of, what) in policies.items()
            ],
        },
    )


def _type(name: str) -> dict[str, Any]:
    return {"arguments": {"x-queue-type": "quorum"} if name.startswith("quorum") else {}}


@dataclass(slots=True)
class ShopAccount:
    """By body, which is the queue that it was published for, and a number."""

    attempts: Counter[str] = field(default_factory=Counter)
    confirmed: set[str] = field(default_factory=set)
    taken: Counter[str] = field(default_factory=Counter)
    came: dict[str, list[str]] = field(default_factory=dict)
    """At the target, by the queue that they were published for, in order."""

    @property
    def missing(self) -> list[str]:
        return sorted(self.confirmed - self.taken.keys())

    @property
    def twice(self) -> int:
        return sum(max(0, times - max(1, self.attempts[body])) for body, times in self.taken.items())


class Shop:
    """Publishers, each with a user of its own, and consumers, in a thread. All are at the source at first."""

    def __init__(self, source: Callable[[str], str], target: str, users: Sequence[str]) -> None:
        self.account = ShopAccount()
        self.refused: set[str] = set()
        self._source, self._target, self._users = source, target, users
        self._numbers: dict[str, Iterator[int]] = {name: count() for name in QUEUES}
        self._unconfirmed: dict[str, list[tuple[str, str, str]]] = {user: [] for user in users}
        self._at_target = self._ends = False
        self._open: list[AbstractConnection] = []
        self._open_cheaply: list[Connection] = []
        self._publishing: list[Future[None]] = []
        self._lives: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._live()), daemon=True)
        self._thread.start()
        self._loop = self._lives.result(DEADLINE)

    async def _live(self) -> None:
        self._lives.set_result(asyncio.get_running_loop())
        await self._over.wait()

    def do(self, work: Coroutine[Any, Any, T], deadline: float = 2 * DEADLINE) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(deadline)

    def preload(self) -> int:
        """Returns how many."""
        wanted = [self._next(name) for name in QUEUES if name not in BEHIND for _ in range(DEEP.get(name, SHALLOW))]
        self.do(self._preload(wanted))
        self.account.attempts.update(body for _, _, body in wanted)
        self.account.confirmed.update(body for _, _, body in wanted)
        return len(wanted)

    async def _preload(self, wanted: list[tuple[str, str, str]]) -> None:
        """By prepared frames: aio-pika would take longer than the rest of a move."""
        connection = await opened(self._source(self._users[0]))
        publisher, made = await Publisher.on(connection), dict[tuple[str, int], bytes]()
        for at, (exchange, key, text) in enumerate(wanted, 1):
            body = text.encode()
            if (key, len(body)) not in made:
                made[key, len(body)] = publisher.message(exchange, key, body)
            message = made[key, len(body)][: -len(body) - 1] + body + FRAME_END
            if at % AT_ONCE and at < len(wanted):
                publisher.send(message)
            else:
                await publisher.publish(message, count=1, window=len(wanted))
        connection.close()

    def start_publishing(self) -> None:
        for number, user in enumerate(self._users):
            work = self._publish(user, QUEUES[number : -2 : len(self._users)])
            self._publishing.append(asyncio.run_coroutine_threadsafe(work, self._loop))

    def publish_at_target(self) -> None:
        self._at_target = True

    def stop_publishing(self) -> None:
        """Once all that they began is confirmed."""
        self._ends = True
        for each in self._publishing:
            each.result()

    def consume_at_source(self, queues: Sequence[str]) -> AbstractConnection:
        return self.do(self._consume(queues))

    def consume_at_target(self, queues: Sequence[str]) -> None:
        """Until it ends."""
        self.do(self._consume_at_target(queues))

    async def _consume_at_target(self, queues: Sequence[str]) -> None:
        """As cheaply as it can be, like what waits at first was published."""
        for name in queues:
            connection = await opened(self._target)
            self._open_cheaply.append(connection)
            await consume(connection, name, self._took_at_target)

    def hold(self, queue: str, number: int) -> AbstractConnection:
        """Takes so many at the source, and says nothing."""
        return self.do(self._hold(queue, number))

    def ready_at_source(self, queues: Sequence[str]) -> int:
        """Without the HTTP API."""
        return self.do(self._ready_at_source(queues))

    async def _ready_at_source(self, queues: Sequence[str]) -> int:
        connection = await opened(self._source(self._users[0]))
        answers = await connection.ask(*(commands.Queue.Declare(queue=name, passive=True) for name in queues))
        connection.close()
        return sum(each.message_count or 0 for each in answers if isinstance(each, commands.Queue.DeclareOk))

    def leave(self, connection: AbstractConnection) -> None:
        self.do(connection.close())

    def close(self) -> None:
        self._ends = True
        for each in self._open:
            with suppress(Exception):
                self.leave(each)
        for cheap in self._open_cheaply:
            self._loop.call_soon_threadsafe(cheap.close)
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(DEADLINE)

    def _next(self, queue: str) -> tuple[str, str, str]:
        """An exchange, a key and a body."""
        number = next(self._numbers[queue])
        exchange = ROUTED[QUEUES.index(queue) % len(ROUTED)]
        return exchange, "nowhere" if number % NOWHERE == NOWHERE - 1 else queue, f"{queue}:{number:06}"

    async def _publish(self, user: str, queues: Sequence[str]) -> None:
        """Goes on, as users' programs do, wherever it is refused or its connection is closed."""
        while not self._ends or self._unconfirmed[user]:
            with suppress(Exception):
                uri = self._target if self._at_target else self._source(user)
                async with await aio_pika.connect(uri) as connection:
                    await self._publish_some(await connection.channel(), user, queues, is_there=self._at_target)
            self.refused.add(user)
            await asyncio.sleep(AGAIN)

    async def _publish_some(
        self, channel: aio_pika.abc.AbstractChannel, user: str, queues: Sequence[str], *, is_there: bool
    ) -> None:
        waiting = self._unconfirmed[user]
        while is_there is self._at_target and (not self._ends or waiting):
            if not waiting:
                waiting += [self._next(queue) for queue in queues]
            async with asyncio.timeout(DEADLINE):
                await self._publish_all(channel, waiting)
            waiting.clear()
            await asyncio.sleep(len(queues) / 20)

    async def _publish_all(self, channel: aio_pika.abc.AbstractChannel, some: list[tuple[str, str, str]]) -> None:
        await asyncio.gather(*(self._publish_one(channel, *each) for each in some))

    async def _publish_one(self, channel: aio_pika.abc.AbstractChannel, exchange: str, key: str, body: str) -> None:
        if body in self.account.confirmed:
            return
        to = await channel.get_exchange(exchange, ensure=False)
        self.account.attempts[body] += 1
        await to.publish(aio_pika.Message(body.encode(), delivery_mode=2), key, mandatory=True)
        self.account.confirmed.add(body)

    async def _consume(self, queues: Sequence[str]) -> AbstractConnection:
        connection = await aio_pika.connect(self._source(self._users[-1]))
        self._open.append(connection)
        channel = await connection.channel()
        await channel.set_qos(20)
        for name in queues:
            await (await channel.get_queue(name, ensure=False)).consume(self._took_at_source)
        return connection

    async def _took_at_source(self, message: AbstractIncomingMessage) -> None:
        body = message.body.decode()
        await asyncio.sleep(0.02)
        if int(body[-6:]) % REJECTED == 0:
            await message.reject(requeue=False)
        else:
            await message.ack()
            self.account.taken[body] += 1

    def _took_at_target(self, kind: int, payload: bytes) -> None:
        if kind == BODY:
            body = payload.decode()
            self.account.taken[body] += 1
            self.account.came.setdefault(body.partition(":")[0], []).append(body)

    async def _hold(self, queue: str, number: int) -> AbstractConnection:
        connection = await aio_pika.connect(self._source(self._users[-1]))
        self._open.append(connection)
        channel = await connection.channel()
        await channel.set_qos(number)
        held = asyncio.Semaphore(0)

        async def take(_: AbstractIncomingMessage) -> None:
            held.release()

        await (await channel.get_queue(queue, ensure=False)).consume(take)
        async with asyncio.timeout(DEADLINE):
            for _ in range(number):
                await held.acquire()
        return connection
