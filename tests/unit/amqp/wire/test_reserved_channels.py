"""A reserved channel: it has a number, and the broker hears of it with the first message, if there ever is one."""

from __future__ import annotations

import pytest

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.data.quarantined import Room
from agent.amqp.data.splice import Counts
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.amqp.wire.connection import WireConnection
from agent.core.model import AckMode
from agent.errors import TransientError
from tests.unit.amqp.wire.link import Wire, calls, feed, opened, turn


def names(wire: Wire) -> list[str]:
    return [method.name for _, method, _ in calls(wire.taken())]


async def reserved() -> tuple[WireConnection, Wire, Channel, PublishTracker]:
    connection, wire = await opened()
    channel = connection.reserve_channel()
    target = PublishTracker(
        channel,
        connection,
        Counts(),
        ack_mode=AckMode.ON_CONFIRM,
        settle=lambda _: None,
        held=HeldBuffers(0, Room(0)),
    )
    return connection, wire, channel, target


async def publish(target: PublishTracker) -> None:
    publishing = methods.BASIC_PUBLISH.encode(exchange="x", routing_key="k")
    target.write(frames.frame(frames.METHOD, target.number, publishing))
    await turn()


async def test_it_is_opened_once_with_confirms_right_before_the_first_message() -> None:
    _, wire, _, target = await reserved()
    await turn()
    assert wire.taken() == b""
    assert target.is_open
    await publish(target)
    await publish(target)
    assert names(wire) == ["Channel.Open", "Confirm.Select", "Basic.Publish", "Basic.Publish"]


async def test_it_is_opened_before_the_beginning_of_a_large_message() -> None:
    _, wire, channel, target = await reserved()
    target.streams(midway=True)
    await publish(target)
    assert names(wire) == ["Channel.Open", "Confirm.Select", "Basic.Publish"]
    assert channel.is_usable


@pytest.mark.parametrize("end", ["leave", "close"])
async def test_one_that_was_never_opened_is_closed_without_a_word_and_its_number_is_free(end: str) -> None:
    connection, wire = await opened()
    channel, free = connection.reserve_channel(), connection.free_channels
    if end == "leave":
        channel.leave()
    else:
        await channel.close()
    assert channel.closed.done() and not channel.is_usable
    assert wire.taken() == b""  # a broker closes the whole connection over a channel that it doesn't know
    assert connection.free_channels == free + 1


async def test_one_that_was_opened_is_closed_as_others_are() -> None:
    _, wire, channel, target = await reserved()
    await publish(target)
    wire.taken()
    channel.leave()
    assert names(wire) == ["Channel.Close"]
    assert not channel.closed.done()


async def test_it_ends_with_its_connection() -> None:
    connection, _, _, target = await reserved()
    connection.abort(TransientError("it was lost"))
    assert not target.is_open


async def test_none_is_reserved_on_a_connection_that_has_ended() -> None:
    connection, _ = await opened()
    connection.abort(TransientError("it was lost"))
    with pytest.raises(TransientError, match="it was lost"):
        connection.reserve_channel()


async def test_a_refusal_of_what_opens_it_ends_it() -> None:
    connection, _, channel, target = await reserved()
    await publish(target)
    refusal = methods.CHANNEL_CLOSE.encode(code=540, text="NOT_IMPLEMENTED", class_id=85, method_id=10)
    feed(connection, frames.frame(frames.METHOD, target.number, refusal))
    assert not target.is_open
    with pytest.raises(ChannelClosedError, match="NOT_IMPLEMENTED"):
        raise channel.closed.result()
