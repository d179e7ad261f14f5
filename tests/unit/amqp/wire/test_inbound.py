"""What comes from a peer while nothing is taken from it: counted, bounded, and handed out whole afterwards."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire import frames, methods
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.ends import ConnectionClosedError, HeartbeatMissedError
from agent.amqp.wire.inbound import MOST_UNREAD, Unread
from tests.unit.amqp.wire.link import Link, Sent, feed, opened, ready, turn
from tests.unit.amqp.wire.virtual_loop import in_virtual_time

CLOSE = frames.frame(
    frames.METHOD,
    0,
    methods.CONNECTION_CLOSE.encode(code=320, text="CONNECTION_FORCED - shutdown", class_id=0, method_id=0),
)


def delivery(channel: int, size: int) -> bytes:
    message = Sent(1, body=bytes(size))
    content = frames.content(channel, message.properties.write(), message.body, 131_072)
    return frames.frame(frames.METHOD, channel, message.deliver) + content


async def held(connection: WireConnection) -> None:
    connection.inbound.hold("blocked", counts=True)
    await turn()


@given(
    channels=st.lists(st.integers(1, 3), max_size=20),
    cuts=st.lists(st.integers(1, 300), max_size=30),
    data=st.data(),
)
def test_deliveries_are_counted_by_channel_however_they_arrive(
    channels: list[int], cuts: list[int], data: st.DataObject
) -> None:
    sizes = [data.draw(st.integers(0, 400)) for _ in channels]
    pairs = zip(channels, sizes, strict=True)
    whole = bytearray(b"".join(delivery(channel, size) + frames.HEARTBEAT_FRAME for channel, size in pairs))
    unread, end = Unread(), 0
    for cut in [*cuts, len(whole)]:
        end = min(end + cut, len(whole))
        assert unread.look(whole, end) is None
    assert unread.deliveries == {channel: channels.count(channel) for channel in set(channels)}


async def test_what_came_meanwhile_is_counted_and_goes_on_afterwards_in_order() -> None:
    link = await Link.made()
    await link.deliver(Sent(1, body=b"1"), Sent(2, body=b"22"))
    assert len(link.published()) == 2
    await held(link.upstream)
    await link.deliver(*(Sent(tag, body=bytes(tag)) for tag in (3, 4, 5)), cuts=[50] * 100)
    assert (link.upstream.inbound.unread_deliveries(link.out.number), link.upstream.inbound.counts_all) == (3, True)
    assert link.published() == []
    assert link.up.reads
    link.upstream.inbound.release("blocked")
    await turn()
    assert [len(message.body) for message in link.published()] == [3, 4, 5]
    assert link.upstream.inbound.unread_deliveries(link.out.number) == 0


async def test_what_was_put_off_before_is_counted_too() -> None:
    link = await Link.made()
    link.upstream.inbound.hold("full")
    await held(link.upstream)
    assert link.up.reads
    await link.deliver(Sent(1, body=b"1"))
    assert link.upstream.inbound.unread_deliveries(link.out.number) == 1
    link.upstream.inbound.release("blocked")
    assert (link.up.reads, link.upstream.inbound.counts_all) == (False, False)
    link.upstream.inbound.release("full")
    await turn()
    assert (link.up.reads, len(link.published())) == (True, 1)


async def test_no_more_is_read_than_there_is_room_for() -> None:
    connection, wire = await opened()
    number = ready(connection).number
    await held(connection)
    message = delivery(number, 100_000)
    count = MOST_UNREAD // len(message) + 1
    for _ in range(count):
        assert (wire.reads, connection.inbound.counts_all) == (True, True)
        feed(connection, message)
    assert (wire.reads, connection.inbound.counts_all) == (False, False)
    assert connection.inbound.unread_deliveries(number) == count


async def test_a_peer_that_closes_the_connection_is_heard() -> None:
    connection, wire = await opened()
    number = ready(connection).number
    await held(connection)
    wire.taken()
    feed(connection, delivery(number, 10) + CLOSE)
    end = connection.closed.result()
    assert isinstance(end, ConnectionClosedError)
    assert "CONNECTION_FORCED - shutdown" in str(end)
    assert wire.taken() == frames.frame(frames.METHOD, 0, methods.CONNECTION_CLOSE_OK.encode())


async def test_a_peer_that_closes_with_garbage_ends_no_more_than_the_connection() -> None:
    connection, _ = await opened()
    await held(connection)
    feed(connection, frames.frame(frames.METHOD, 0, b"\0\x0a\0\x32\x01"))
    assert "broken AMQP" in str(connection.closed.result())


def test_silence_is_noticed_as_ever_where_what_comes_is_counted() -> None:
    async def scenario() -> None:
        connection, _ = await opened(heartbeat=10)
        connection.inbound.hold("full")
        await asyncio.sleep(102)
        await held(connection)
        await asyncio.sleep(19)
        assert not connection.closed.done()
        await asyncio.sleep(2)
        assert isinstance(connection.closed.result(), HeartbeatMissedError)

    in_virtual_time(scenario())
