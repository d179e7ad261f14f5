"""Streams: where a consumer begins, and what one can't do."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core import fields
from agent.core.fields import Field
from agent.errors import BrokerError
from tests.contract.asking import Asking, Line, Release
from tests.lab.waiting import DEADLINE, eventually_async

NO_PREFETCH: Final = {
    "3.10": "406 PRECONDITION_FAILED - consumer prefetch count is not set for 'queue '{}' in vhost 'V''",
    "4.0": "406 PRECONDITION_FAILED - consumer prefetch count is not set for stream queue '{}' in vhost 'V'",
}
NO_ACK: Final = {
    "3.10": "closed: 540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues queue '{}' in "
    "vhost 'V'",
    "4.0": "closed: 540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue '{}' in vhost 'V'",
}
OF_TYPE: Final = "406 PRECONDITION_FAILED - invalid arg '{}' for queue '{}' in vhost 'V' of queue type rabbit_{}_queue"
QUIET: Final = 0.5
COUNT: Final = 20
OFFSETS: Final = (
    (fields.text("first"), 0),
    (fields.text("1h"), 0),
    (Field("T", 1_000_000_000), 0),
    (fields.long(7), 7),
    (fields.long(COUNT - 1), COUNT - 1),
    (fields.text("next"), COUNT),
    (fields.long(COUNT), COUNT),
    (fields.long(1_000), COUNT),
)
"""And the number of the message that a consumer gets first."""


@pytest.fixture
async def stream(ask: Asking, request: pytest.FixtureRequest) -> str:
    """With the messages 00 to 19."""
    name = f"stream of {request.node.name}"[:60]
    assert await ask.queue(name, {"x-queue-type": "stream"}) == "ok, 0 messages, 0 consumers"
    line = await ask.line(confirms=True)
    for number in range(COUNT):
        await line.publish("", name, b"\0\0", f"{number:02}".encode())
    return name


async def line_with_prefetch(ask: Asking) -> Line:
    line = await ask.line()
    await line.channel.ask(methods.BASIC_QOS, prefetch_count=100)
    return line


async def reading(ask: Asking, stream: str, offset: Field) -> Line:
    line = await line_with_prefetch(ask)
    consumed = {"queue": stream, "consumer_tag": "tag", "arguments": (("x-stream-offset", offset),)}
    await line.channel.ask(methods.BASIC_CONSUME, **consumed)
    return line


async def test_a_consumer_without_prefetch_or_acknowledgements(ask: Asking, release: Release, stream: str) -> None:
    """The one is refused; the other costs the connection."""
    line = await ask.line()
    assert await line.consume(stream, "tag") == release.says(NO_PREFETCH).format(stream)
    line = await line_with_prefetch(ask)
    assert await line.consume(stream, "tag", no_ack=True) == release.says(NO_ACK).format(stream)


async def test_arguments_that_a_type_of_queue_refuses(ask: Asking, stream: str) -> None:
    line = await line_with_prefetch(ask)
    refused = OF_TYPE.format("x-priority", stream, "stream")
    assert await line.consume(stream, "tag", {"x-priority": -1}) == refused
    await ask.queue("classic", {"x-queue-type": "classic"})
    line = await ask.line()
    refused = OF_TYPE.format("x-stream-offset", "classic", "classic")
    assert await line.consume("classic", "tag", {"x-stream-offset": "first"}) == refused


async def test_where_a_consumer_begins(ask: Asking, stream: str) -> None:
    """Behind the end nothing comes, and nobody says so."""
    lines = [(await reading(ask, stream, offset), first) for offset, first in OFFSETS]
    for line, first in lines:
        if first < COUNT:
            await line.until(lambda line=line: line.bodies[-1:] == [f"{COUNT - 1:02}"], "all come")  # type: ignore[misc]
    await asyncio.sleep(QUIET)
    for line, first in lines:
        assert line.bodies == [f"{number:02}" for number in range(first, COUNT)]
        headers = [dict(message.properties.headers) for message in line.messages]
        assert headers == [{"x-stream-offset": fields.long(number)} for number in range(first, COUNT)]


async def test_a_message_that_is_given_back(ask: Asking, release: Release, stream: str) -> None:
    """On 3.10 it costs the connection. Later it counts as acknowledged, and never comes again."""
    line = await reading(ask, stream, fields.text("first"))
    await line.until(lambda: len(line.bodies) >= COUNT, "all come")
    line.channel.send(methods.BASIC_NACK, delivery_tag=3, multiple=False, requeue=True)
    closes = release.says({"3.10": True, "4.0": False})
    await asyncio.wait([line.channel.closed], timeout=DEADLINE if closes else 2)
    assert line.channel.closed.done() is closes
    if closes:
        error: BrokerError = line.channel.closed.result()
        assert not isinstance(error, ChannelClosedError)
    else:
        assert len(line.bodies) == COUNT


async def test_a_delivery_limit_of_minus_one(ask: Asking, release: Release) -> None:
    """From 4.0 on there is none; before, the first return drops the message."""
    await ask.queue("unlimited", {"x-queue-type": "quorum", "x-delivery-limit": -1})
    await ask.publish("", "unlimited")
    line = await ask.line()
    await line.consume("unlimited", "tag")
    await line.until(lambda: line.bodies, "it comes")
    await line.channel.close()
    await asyncio.sleep(QUIET)
    expected = release.says({"3.10": 0, "4.0": 1})

    async def is_back() -> bool:
        return len(await ask.all_of("unlimited")) == expected

    await eventually_async(is_back, what=f"{expected} come again")
