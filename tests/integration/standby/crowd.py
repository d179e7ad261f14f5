"""Users of a source: publishers of numbered messages, and consumers that come, go, hold, return and die; and what
became of each message of each queue."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import aio_pika
import uvloop
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from tests.integration.federation.sites import Site
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE

EXCHANGES: Final = {"orders": "topic", "news": "fanout", "tasks": "direct", "facts": "topic", "audit": "fanout"}
"""The last one also gets what is published to the first."""
KEYS: Final = ("a", "b", "c")
QUEUES: Final = 30
QUORUM_EVERY: Final = 5
BATCH: Final = 6
PAUSE: Final = 0.2
APPLIED: Final = 5.0
"""Seconds after which an acknowledgement of a client that dies has surely come."""
CONFIRMED_WITHIN: Final = 60.0


@dataclass(slots=True)
class Fate:
    """What became of the messages of a queue, by their numbers: when each was consumed at last. It is in doubt whether
    the broker knows of those acknowledgements that a client sent just before it died."""

    entered: set[int] = field(default_factory=set)
    consumed: dict[int, float] = field(default_factory=dict)
    in_doubt: set[int] = field(default_factory=set)

    @property
    def waiting(self) -> set[int]:
        return self.entered - self.consumed.keys() - self.in_doubt


@dataclass(frozen=True, slots=True)
class Accounted:
    """Of all queues together. `repeated` were consumed at the source, or are there more than once."""

    published: int
    entered: int
    consumed: int
    in_doubt: int
    here: int
    lost: dict[str, list[int]]
    repeated: dict[str, list[int]]

    def __str__(self) -> str:
        lost, repeated = (sum(map(len, each.values())) for each in (self.lost, self.repeated))
        return (
            f"published {self.published:,}; came to queues {self.entered:,}; consumed {self.consumed:,}, in doubt "
            f"{self.in_doubt:,}; at the standby {self.here:,}; lost {lost:,}, repeated {repeated:,}"
        )


class Crowd:
    """`to_source` is the network of those who die."""

    def __init__(self, site: Site, to_source: Proxy, *, seed: int = 1) -> None:
        self.fates: dict[str, Fate] = {}
        self.published: dict[int, float] = {}
        self._site, self._proxy = site, to_source
        self._random = random.Random(seed)
        self._bound: dict[str, list[tuple[str, frozenset[str]]]] = {each: [] for each in EXCHANGES}
        self._numbers = 0
        self._no_more = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._all()), daemon=True)

    def build(self) -> None:
        """The exchanges, and queues of both types that get all or a third of one of them."""
        admin, vhost = self._site.node.admin, self._site.vhost
        for name, kind in EXCHANGES.items():
            admin.exchange(vhost, name, kind)
        for number in range(QUEUES):
            exchange = tuple(EXCHANGES)[number % len(EXCHANGES)]
            keys = KEYS if EXCHANGES[exchange] == "fanout" or number % 2 else (KEYS[number % len(KEYS)],)
            name = f"q{number:02}"
            arguments = {"x-queue-type": "quorum"} if number // len(EXCHANGES) % QUORUM_EVERY == 1 else {}
            admin.queue(vhost, name, arguments=arguments)
            for key in keys:
                admin.bind(vhost, exchange, name, key)
            self._bound[exchange].append((name, frozenset(keys)))
            self.fates[name] = Fate()
        admin.bind(vhost, "orders", "audit", "#", to_exchange=True)

    def reached(self, exchange: str, key: str) -> set[str]:
        """The queues that get what is published so."""
        return {queue for queue, keys in self._bound[exchange] if key in keys}

    def start(self) -> Crowd:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Once what was published is confirmed, and everybody has left in order."""
        self._no_more.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def lose_source(self) -> None:
        """What isn't confirmed by now never will be."""
        self._ends.set()
        self.stop()

    def account(self, here: Mapping[str, list[int]]) -> Accounted:
        lost = {name: sorted(fate.waiting - set(here[name])) for name, fate in self.fates.items()}
        repeated: dict[str, list[int]] = {}
        for name, fate in self.fates.items():
            times = Counter(here[name])
            again = Counter({number: count - (number not in fate.consumed) for number, count in times.items()})
            repeated[name] = sorted(again.elements())
        fates = self.fates.values()
        return Accounted(
            len(self.published),
            sum(len(each.entered) for each in fates),
            sum(len(each.consumed) for each in fates),
            sum(len(each.in_doubt) for each in fates),
            sum(map(len, here.values())),
            {name: found for name, found in lost.items() if found},
            {name: found for name, found in repeated.items() if found},
        )

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for exchange in EXCHANGES:
                group.create_task(self._publish(exchange))
            for number, name in enumerate(self.fates):
                group.create_task(self._consume(name, number))

    @property
    def _is_over(self) -> bool:
        return self._no_more.is_set() or self._ends.is_set()

    async def _publish(self, exchange: str) -> None:
        with suppress(Exception):
            async with await aio_pika.connect(self._site.uri) as connection:
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                to = await channel.get_exchange(exchange, ensure=False)
                while not self._is_over:
                    async with asyncio.timeout(CONFIRMED_WITHIN):
                        await asyncio.gather(*(self._publish_one(exchange, to) for _ in range(BATCH)))
                    await asyncio.sleep(PAUSE)
                return
        assert self._ends.is_set(), f"the publisher of {exchange} has lost its connection"

    async def _publish_one(self, exchange: str, to: aio_pika.abc.AbstractExchange) -> None:
        self._numbers += 1
        number, key = self._numbers, self._random.choice(KEYS)
        body = str(number).encode().ljust(200)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await to.publish(message, key, mandatory=True)
        self.published[number] = time.monotonic()
        for each in (exchange, "audit") if exchange == "orders" else (exchange,):
            for queue in self.reached(each, key):
                self.fates[queue].entered.add(number)

    async def _consume(self, queue: str, number: int) -> None:
        """One after another, of whom each sixth queue has none."""
        if number // len(EXCHANGES) == len(EXCHANGES):
            return
        while not self._is_over:
            consumer = _Consumer(self._site, queue, self.fates[queue], self._random, self._proxy)
            with suppress(Exception):  # whatever a broker that dies answers
                await consumer.run(lambda: self._is_over)
            consumer.note_doubts()
            await asyncio.sleep(self._random.uniform(0.1, 1.5))


class _Consumer:
    """One connection: it acknowledges at once, or late, or returns some first, and leaves in order or is cut off."""

    def __init__(self, site: Site, queue: str, fate: Fate, chance: random.Random, proxy: Proxy) -> None:
        self._uri, self._dying_uri = site.uri, site.node.uri(site.vhost, port=proxy.port)
        self._queue, self._fate, self._random = queue, fate, chance
        self._how = chance.choice(("at once", "at once", "late", "returns", "dies"))
        self._recent: list[tuple[float, int]] = []
        self._left_in_order = False
        self._holds: set[asyncio.Task[None]] = set()

    async def run(self, is_over: Callable[[], bool]) -> None:
        connection = await aio_pika.connect(self._dying_uri if self._how == "dies" else self._uri, timeout=5)
        try:
            channel = await connection.channel()
            await channel.set_qos(50)
            queue = await channel.get_queue(self._queue, ensure=False)
            tag = await queue.consume(self._took)
            ends = time.monotonic() + self._random.uniform(2, 8)
            while time.monotonic() < ends and not is_over() and not connection.is_closed:  # noqa: ASYNC110 - a thread's
                await asyncio.sleep(0.1)
            await queue.cancel(tag)
            await asyncio.gather(*self._holds, return_exceptions=True)
            await self._settle(channel)
            self._left_in_order = True
        finally:
            for each in self._holds:
                each.cancel()
            with suppress(Exception):
                async with asyncio.timeout(2):
                    await connection.close()

    async def _settle(self, channel: AbstractChannel) -> None:
        """A quorum queue forgets what it keeps of acknowledgements when a channel ends at once."""
        begun = time.monotonic()
        await channel.set_qos(50)
        await asyncio.sleep(1)
        await channel.set_qos(50)
        assert time.monotonic() - begun < APPLIED, "the broker stood still: what it knows is in doubt"

    def note_doubts(self) -> None:
        if not self._left_in_order:
            since = time.monotonic() - 2 * APPLIED
            late = {number for at, number in self._recent if at > since}
            for number in late:
                self._fate.consumed.pop(number, None)
            self._fate.in_doubt |= late

    async def _took(self, message: AbstractIncomingMessage) -> None:
        if self._how == "returns" and not message.redelivered and self._random.random() < 0.2:
            await message.nack(requeue=True)
        elif self._how == "late":
            task = asyncio.create_task(self._hold(message))
            self._holds.add(task)
            task.add_done_callback(self._holds.discard)
        else:
            await self._acknowledge(message)

    async def _hold(self, message: AbstractIncomingMessage) -> None:
        await asyncio.sleep(self._random.uniform(0.5, 6))
        await self._acknowledge(message)

    async def _acknowledge(self, message: AbstractIncomingMessage) -> None:
        if self._random.random() < 0.02:
            await message.reject(requeue=False)  # gone, as well
        else:
            await message.ack()
        number = int(message.body)
        self._recent.append((time.monotonic(), number))
        self._fate.consumed[number] = time.monotonic()
        self._fate.in_doubt.discard(number)
