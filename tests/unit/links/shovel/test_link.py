"""What a shovel's session leaves to the next one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import parse
from agent.core.model import AckMode, QueueDestination, ShovelLink, ShovelSettings
from agent.errors import TransientError
from agent.links.brokers import Brokers, Connections
from agent.links.shovel.delete_after import Former
from agent.links.shovel.link import ShovelLinks
from tests.simulation.broker.queues import Queue
from tests.unit.core.some_links import shovel_link
from tests.unit.model_brokers import HERE, THERE, Models, among_models

COUNT = 3


def counting_link() -> ShovelLink:
    """It ends after a few messages."""
    shovel = replace(
        shovel_link().shovel,
        source_uris=(parse(f"amqp://{THERE}"),),
        destination_uris=(parse(f"amqp://{HERE}"),),
        destination=QueueDestination("q"),
        settings=ShovelSettings(delete_after=COUNT + 2, ack_mode=AckMode.ON_PUBLISH),
    )
    return replace(shovel_link(), uris=shovel.source_uris, shovel=shovel)


def give_messages(models: Models) -> None:
    models.broker(HERE).make_queue(Queue("q", durable=True))
    source = models.broker(THERE)
    source.make_queue(Queue("q", durable=True))
    for _ in range(COUNT):
        source.publish("", "q", b"\0\0", b"m")


class WithoutFlow(Connections):
    """Those that are asked open, those that carry messages don't."""

    async def flow(self, *_: object, **__: object) -> tuple[Shared, Shared]:
        raise TransientError("connection refused")


def test_what_was_moved_counts_once_although_the_next_session_does_not_open() -> None:
    async def live(models: Models) -> None:
        give_messages(models)
        brokers = Brokers((), "here", stall_after=30)
        counts = Counts()
        runnable = ShovelLinks(brokers).runnable(counting_link(), counts, lambda: None)
        connections = Connections(brokers, lambda _: None)
        session = runnable.session(connections, dedicated=False)
        await session.open()
        await asyncio.sleep(1)
        assert counts.forwarded == COUNT
        assert session.flow is not None
        await session.flow.leave()
        await connections.leave(connections.detach())
        for _ in range(3):
            refused = WithoutFlow(brokers, lambda _: None)
            with pytest.raises(TransientError, match="connection refused"):
                await runnable.session(refused, dedicated=False).open()
            assert runnable.remaining == 2
            await refused.leave(refused.detach())

    among_models(live)


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_is_forwarded_before_it_is_known_to_have_begun_counts(*, is_cut: bool) -> None:
    """The session is cancelled when messages have come with the answer that it waits for, which it hasn't seen yet."""

    async def live(models: Models) -> None:
        give_messages(models)
        counts, brokers = Counts(), Brokers((), "here", stall_after=30)
        runnable = ShovelLinks(brokers).runnable(counting_link(), counts, lambda: None)
        connections = Connections(brokers, lambda _: None)
        session = runnable.session(connections, dedicated=False)
        opening = asyncio.create_task(session.open())

        def cancel_soon() -> None:
            loop.call_soon(lambda: counts.taken and opening.cancel())

        loop = asyncio.get_running_loop()
        while not opening.done():
            for stream in models.network.streams:
                stream.down.on_drained = cancel_soon
            await asyncio.sleep(0.0001)
        assert opening.cancelled()
        assert session.flow is not None
        for stream in tuple(models.network.streams) if is_cut else ():
            stream.cut()
        await asyncio.sleep(1)
        await session.flow.leave()
        await connections.leave(connections.detach())
        assert runnable.memory.former == Former(COUNT, in_doubt=COUNT if is_cut else 0)

    among_models(live)
