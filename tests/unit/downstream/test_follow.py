"""Bindings that events report while readings fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agent.amqp.broker_events import BrokerEvent
from agent.downstream.bindings import BindingChange, BindingFollower, Federated
from agent.downstream.listen import Listener
from agent.errors import TransientError
from tests.unit.amqp.wire.virtual_loop import in_virtual_time

X = ("/", "x")
HANGS = 30.0


class Reported(Listener):
    """Reports what is put into `events`."""

    def __init__(self) -> None:
        super().__init__(tuple)
        self.reported: asyncio.Queue[BrokerEvent] = asyncio.Queue()

    @asynccontextmanager
    async def events(self, keys: Sequence[str]) -> AsyncIterator[AsyncIterator[BrokerEvent] | None]:  # noqa: ARG002
        yield self._all()

    async def _all(self) -> AsyncIterator[BrokerEvent]:
        while True:
            yield await self.reported.get()


def created(key: str) -> BrokerEvent:
    names = {"vhost": "/", "source_name": "x", "destination_name": "q", "destination_kind": "queue"}
    return BrokerEvent("binding.created", names | {"routing_key": key, "arguments": []})


def test_a_binding_is_followed_at_once_while_a_reading_that_failed_waits_for_its_turn() -> None:
    async def live() -> None:
        listener, changed, readings = Reported(), list[str](), list[float]()
        loop = asyncio.get_running_loop()

        async def read(_: frozenset[Federated]) -> None:
            readings.append(loop.time())
            if len(readings) == 1:
                await asyncio.sleep(HANGS)
                raise TransientError("no answer")

        def change(changes: Sequence[BindingChange]) -> None:
            changed.extend(each.binding.routing_key for each in changes)

        follower = BindingFollower(listener=listener, sources=lambda: [{X}], change=change, read=read)
        task = asyncio.create_task(follower.run())
        await asyncio.sleep(HANGS + 2)
        listener.reported.put_nowait(created("k"))
        await asyncio.sleep(0.1)
        assert (changed, len(readings)) == (["k"], 1)
        await asyncio.sleep(2 * HANGS)
        assert len(readings) == 2, "what failed is read again"
        task.cancel()
        await asyncio.wait([task])

    in_virtual_time(live())
