"""The look at an address: what a Translator makes of it is a passive declare of a queue."""

from __future__ import annotations

from contextlib import suppress

import pytest

from agent.amqp.connect import connect
from agent.amqp.wire.tables import MAX_SHORT
from agent.amqp10.terminus import Terminus, shortened, try_address
from agent.core.addresses.uri import parse
from agent.errors import FailureKind, TransientError
from tests.simulation.broker.queues import Queue
from tests.simulation.network import Stream
from tests.unit.model_brokers import HERE, Models, among_models

URI = parse(f"amqp://{HERE}")


def test_an_address_that_is_missing_is_named() -> None:
    async def live(models: Models) -> None:
        broker = models.broker(HERE, version="4.3.6")
        broker.make_queue(Queue("/queues/there", durable=True))
        async with await connect(URI, where="shovel source", name="test") as connection:
            await try_address(connection, Terminus("/queues/there", is_source=True))
            with pytest.raises(TransientError, match="attaching to '/queues/away': NOT_FOUND") as caught:
                await try_address(connection, Terminus("/queues/away", is_source=False))
        assert caught.value.failure.kind is FailureKind.NOT_FOUND

    among_models(live)


@pytest.mark.parametrize(
    ("version", "address", "is_source", "is_asked"),
    [
        ("3.10.8", "/amq/queue/q", True, True),
        ("3.10.8", "/queues/q", True, True),  # it refuses that form
        ("3.10.8", "/queue/q", True, False),
        ("3.10.8", "q", False, False),
        ("3.10.8", "/exchange/x/k", True, False),
        ("3.10.8", "/topic/k", True, False),
        ("3.10.8", "/exchange/x/k", False, True),
        ("4.3.6", "/queue/q", True, True),
        ("4.3.6", "/exchange/x/k", True, True),
    ],
)
def test_no_look_makes_a_broker_declare_something(version: str, address: str, is_source: bool, is_asked: bool) -> None:
    async def live(models: Models) -> None:
        models.broker(HERE, version=version)
        asked: list[bytes] = []

        def written(_: Stream, data: bytes) -> None:
            asked.extend([data] if address.encode() in data else [])

        async with await connect(URI, where="shovel source", name="test") as connection:
            models.network.on_write = written
            with suppress(TransientError):  # none is there
                await try_address(connection, Terminus(address, is_source=is_source))
        assert bool(asked) is is_asked

    among_models(live)


def test_a_long_address_is_shown_as_far_as_names_go() -> None:
    found = shortened("/queues/" + "ä" * MAX_SHORT)
    assert len(found.encode()) == MAX_SHORT - 1
    assert set(found.removeprefix("/queues/")) == {"ä"}
