"""When the list of consumers is read, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from agent.amqp.broker_events import BrokerEvent
from agent.downstream.consumers import LATE, ConsumerFollower, Consumers
from agent.downstream.listen import Listener
from agent.management.answers import ConsumerAnswer
from tests.unit.amqp.wire.virtual_loop import in_virtual_time

V, Q = "v", "q"
PROMISED = 30.0  # seconds in which messages flow again
BELOW: ConsumerAnswer = {"queue": {"name": Q}, "consumer_tag": "a", "arguments": {"x-priority": -1}}


def below(channel: str) -> BrokerEvent:
    arguments = ['{<<"x-priority">>,signedint,-1}']
    fields = {"vhost": V, "queue": Q, "consumer_tag": "a", "channel": channel, "arguments": arguments}
    return BrokerEvent("consumer.created", fields)


class Reported(Listener):
    """The events that a test says."""

    def __init__(self) -> None:
        super().__init__(tuple)
        self._reported: asyncio.Queue[BrokerEvent] = asyncio.Queue()

    async def report(self, event: BrokerEvent) -> None:
        self._reported.put_nowait(event)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def events(self, _: Iterable[str]) -> AsyncIterator[AsyncIterator[BrokerEvent]]:
        yield self._each()

    async def _each(self) -> AsyncIterator[BrokerEvent]:
        while True:
            yield await self._reported.get()


def test_what_nobody_reports_is_noticed_in_time() -> None:
    """A link below was connected to a node that is down, and comes back by another, at any time between two lists."""

    async def noticed_after(seconds: float) -> float:
        loop, consumers, changed = asyncio.get_running_loop(), Consumers(), asyncio.Event()

        async def read(vhost: str) -> list[ConsumerAnswer]:
            return [BELOW] if vhost == V else []

        listener = Reported()
        follower = ConsumerFollower(consumers, listener=listener, read=read)
        with consumers.watching(V, Q, changed.set):
            following = asyncio.create_task(follower.run())
            await asyncio.sleep(2 * LATE + seconds)
            begun = loop.time()
            await listener.report(below("by another node"))
            assert consumers.below_zero(V, Q) == 2
            changed.clear()
            await changed.wait()
            assert consumers.below_zero(V, Q) == 1
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        return loop.time() - begun

    for seconds in range(0, 60, 4):
        assert in_virtual_time(noticed_after(seconds)) < PROMISED
