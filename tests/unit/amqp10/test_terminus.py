"""The look at an address: what a Translator makes of it is a passive declare of a queue."""

from __future__ import annotations

import pytest

from agent.amqp.connect import connect
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.tables import MAX_SHORT
from agent.amqp10.terminus import Terminus, address_refused, ask_for_address, may_be_declared, shortened
from agent.core.addresses.uri import parse
from agent.errors import FailureKind, PermanentError, TransientError
from tests.simulation.broker.queues import Queue
from tests.simulation.network import Stream
from tests.unit.model_brokers import HERE, Models, among_models

URI = parse(f"amqp://{HERE}")


def test_an_address_that_is_missing_is_named_or_declared() -> None:
    async def live(models: Models) -> None:
        broker = models.broker(HERE, version="4.3.6")
        broker.make_queue(Queue("/queues/there", durable=True))
        async with await connect(URI, where="shovel source", name="test") as connection:
            there, away = (Terminus(f"/queues/{name}", is_source=True) for name in ("there", "away"))
            assert isinstance(await ask_for_address(connection, there), Call)
            for terminus, may_be in ((away, True), (Terminus("/exchanges/away", is_source=False), False)):
                answer = await ask_for_address(connection, terminus)
                assert isinstance(answer, ChannelClosedError)
                assert may_be_declared(connection, terminus, answer) is may_be
                error = address_refused(connection, terminus, answer)
                assert f"attaching to '{terminus.address}': NOT_FOUND" in str(error)
                assert (type(error), error.failure.kind) == (TransientError, FailureKind.NOT_FOUND)

    among_models(live)


@pytest.mark.parametrize(
    ("version", "address", "advice"),
    [
        ("4.3.6", "/queue/q", ": RabbitMQ 4.3.6 takes '/queues/q'"),
        ("4.3.6", "/queues/q", ""),
        ("3.10.8", "/queues/q", ": RabbitMQ 3.10.8 takes '/amq/queue/q'"),
    ],
)
def test_a_form_that_the_release_refuses_has_to_be_changed(version: str, address: str, advice: str) -> None:
    async def live(models: Models) -> None:
        models.broker(HERE, version=version)
        answer = ChannelClosedError(503, "COMMAND_INVALID - no such address")
        async with await connect(URI, where="shovel source", name="test") as connection:
            error = address_refused(connection, Terminus(address, is_source=True), answer)
        assert isinstance(error, PermanentError)
        assert str(error).endswith(f"attaching to '{address}': COMMAND_INVALID - no such address{advice}")

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
            answer = await ask_for_address(connection, Terminus(address, is_source=is_source))
            assert (answer is not None) is is_asked
        assert bool(asked) is is_asked

    among_models(live)


def test_a_long_address_is_shown_as_far_as_names_go() -> None:
    found = shortened("/queues/" + "ä" * MAX_SHORT)
    assert len(found.encode()) == MAX_SHORT - 1
    assert set(found.removeprefix("/queues/")) == {"ä"}
