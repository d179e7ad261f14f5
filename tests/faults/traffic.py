"""A publisher and a consumer as users have them: they connect again, and send again what wasn't confirmed."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import aio_pika
import uvloop

from tests.faults.account import Account
from tests.lab.waiting import DEADLINE

AT_ONCE: Final = 50  # messages that wait for their confirms
AGAIN: Final = 0.2
CONNECT_WITHIN: Final = 10.0
CONFIRMED_WITHIN: Final = 5.0
KEY: Final = "k"
LONG: Final = 2048
LONG_EVERY: Final = 100


class Traffic:
    """Numbered messages to an exchange, `count` of them in so many seconds for each `part`, and whatever comes out of a
    queue, until `stop`."""

    def __init__(self, source: str, exchange: str, destination: str, queue: str, *, count: int, seconds: float) -> None:
        self.account = Account()
        self._source, self._exchange = source, exchange
        self._destination, self._queue = destination, queue
        self._count, self._pause = count, AT_ONCE * seconds / count
        self._next, self._until = 0, 0.0
        self._batch: list[int] = []
        self._no_more = threading.Event()
        self._ends = threading.Event()
        self._may_publish = threading.Event()
        self._may_publish.set()
        self._may_end = threading.Event()
        self._may_end.set()
        self._holds = threading.Event()
        self._threads = [
            threading.Thread(target=lambda work=each: uvloop.run(work()), daemon=True)
            for each in (self._publish, self._consume)
        ]

    def start(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def part(self, count: int = 0) -> Traffic:
        """So many messages more, or the `count` given, a multiple of AT_ONCE, of which it keeps the last ones until it
        may `end`."""
        self._may_end.clear()
        self._until += count or self._count
        return self

    def hurry(self) -> Traffic:
        """Before it starts: as fast as confirms come, until `finish`."""
        self._until, self._pause = math.inf, 0.0
        return self

    def finish(self) -> None:
        """Publishes nothing new, and waits until what it began is confirmed."""
        self._no_more.set()
        self._threads[0].join(DEADLINE)
        assert not self._threads[0].is_alive()

    def end(self) -> None:
        self._may_end.set()

    def hold(self) -> None:
        """Publishes no more for now, once what it has begun is confirmed: then it `holds`."""
        self._holds.clear()
        self._may_publish.clear()

    @property
    def holds(self) -> bool:
        return self._holds.is_set()

    def go_on(self) -> None:
        self._may_publish.set()

    @property
    def is_published(self) -> bool:
        return len(self.account.confirmed) == self._until

    @property
    def is_delivered(self) -> bool:
        return not self.account.missing

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(DEADLINE)
            assert not thread.is_alive()

    async def _publish(self) -> None:
        while not self._is_over:
            with suppress(Exception):  # whatever a broker that is broken answers
                await self._publish_some()
            await asyncio.sleep(AGAIN)

    @property
    def _is_over(self) -> bool:
        """What was begun and isn't confirmed whole is published first."""
        return self._ends.is_set() or (self._no_more.is_set() and not self._batch)

    def _has_some(self) -> bool:
        """True if there is a batch that may be published now; the next one is begun where there is none."""
        if not self._batch and self._next < self._until and not self._no_more.is_set():
            self._batch = list(range(self._next, self._next + AT_ONCE))
            self._next += AT_ONCE
        is_last = bool(self._batch) and self._batch[-1] + 1 == self._until
        return bool(self._batch) and self._may_publish.is_set() and (self._may_end.is_set() or not is_last)

    async def _publish_some(self) -> None:
        """As long as the connection lasts."""
        connection = await aio_pika.connect(self._source, timeout=CONNECT_WITHIN)
        try:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            exchange = await channel.get_exchange(self._exchange, ensure=False)
            while not self._is_over:
                if self._has_some():
                    async with asyncio.timeout(CONFIRMED_WITHIN):
                        await asyncio.gather(*(self._publish_one(exchange, number) for number in self._batch))
                    self._batch = []
                else:
                    self._holds.set()
                await asyncio.sleep(self._pause)
        finally:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await connection.close()

    async def _publish_one(self, exchange: aio_pika.abc.AbstractExchange, number: int) -> None:
        if number in self.account.confirmed:
            return
        self.account.attempts[number] += 1
        body = str(number).encode().ljust(0 if number % LONG_EVERY else LONG)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await exchange.publish(message, KEY, mandatory=True)  # what no queue takes raises, and is sent again
        self.account.confirmed[number] = time.monotonic()

    async def _consume(self) -> None:
        while not self._ends.is_set():
            with suppress(Exception):
                await self._consume_some()
            await asyncio.sleep(AGAIN)

    async def _consume_some(self) -> None:
        connection = await aio_pika.connect(self._destination, timeout=CONNECT_WITHIN)
        try:
            channel = await connection.channel()
            await channel.set_qos(500)
            queue = await channel.get_queue(self._queue, ensure=False)
            await queue.consume(self._took)
            await self._while_it_lasts(lambda: connection.is_closed or channel.is_closed)
        finally:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await connection.close()

    async def _while_it_lasts(self, is_over: Callable[[], bool]) -> None:
        while not self._ends.is_set() and not is_over():  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(AGAIN)

    async def _took(self, message: aio_pika.abc.AbstractIncomingMessage) -> None:
        """Counted only once the broker is told: a message that it gives out again is the consumer's own doing."""
        if not message.redelivered:
            self.account.delivered.append((time.monotonic(), int(message.body)))
        else:
            self._took_again(int(message.body))
        await message.ack()

    def _took_again(self, number: int) -> None:
        if all(each != number for _, each in self.account.delivered[-2_000:]):
            self.account.delivered.append((time.monotonic(), number))


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
