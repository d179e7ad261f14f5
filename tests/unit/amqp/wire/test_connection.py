"""Whatever a peer says, the connection goes on or ends with an error that says why; it never holds much of it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import CLOSE_PATIENCE, ChannelClosedError
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.ends import HeartbeatMissedError, NotAmqpError
from agent.amqp.wire.inbound import BUFFER, IDLE_BUFFER
from agent.errors import BrokerError, TransientError
from tests.unit.amqp.wire.link import Link, Sent, Wire, calls, feed, opened, ready, terms, turn
from tests.unit.amqp.wire.strategies import properties
from tests.unit.amqp.wire.virtual_loop import VirtualLoop, in_virtual_time

kinds = st.sampled_from([1, 1, 2, 2, 3, 3, 8, 0, 255])
ids = st.sampled_from([method.ids for method in methods.BY_IDS.values()]).map(
    lambda pair: pair[0].to_bytes(2, "big") + pair[1].to_bytes(2, "big")
)
well_made = st.sampled_from(list(methods.BY_IDS.values())).map(lambda method: method.encode())
deliver = st.builds(lambda tag: Sent(tag).deliver, st.integers(0, 5))
header = st.builds(
    lambda size, raw: frames.BASIC_HEADER.pack(60, 0, size) + raw,
    st.integers(0, 100) | st.sampled_from([2**32, 2**63, 2**64 - 1]),
    properties.map(lambda found: found.write()) | st.binary(max_size=30),
)
payloads = st.one_of(
    st.binary(max_size=60), well_made, deliver, header, st.builds(lambda a, b: a + b, ids, st.binary(max_size=30))
)
channels = st.sampled_from([0, 1, 1, 2, 2, 3, 40])
frames_of_all_kinds = st.builds(frames.frame, kinds, channels, payloads)
lying = st.builds(
    lambda kind, channel, size, data: frames.PREFIX.pack(kind, channel, size) + data,
    kinds,
    channels,
    st.integers(0, 100) | st.sampled_from([2**16, 2**23, 2**23 + 1, 2**31, 2**32 - 1]),
    st.binary(max_size=60),
)
garbage = st.one_of(frames_of_all_kinds, frames_of_all_kinds, lying, st.binary(max_size=20))
sayings = st.lists(garbage, max_size=12).map(b"".join)
UNBLOCKED = frames.frame(frames.METHOD, 0, methods.CONNECTION_UNBLOCKED.encode())
cuts = st.lists(st.integers(1, 30), max_size=40)


def check(connection: WireConnection) -> None:
    buffer = connection.get_buffer(-1).obj  # all of it: the view itself begins where the next bytes go
    assert isinstance(buffer, bytearray) and len(buffer) <= frames.LARGEST + frames.OVERHEAD + BUFFER
    if connection.closed.done():
        error = connection.closed.result()
        assert isinstance(error, BrokerError)
        assert str(error)


@given(sayings, sayings, cuts)
def test_garbage_ends_a_connection_at_worst(upstream: bytes, downstream: bytes, sizes: list[int]) -> None:
    async def scenario() -> None:
        link = await Link.made()
        other = ready(link.upstream)
        ready(link.downstream)
        other.on_message = lambda _: None
        other.on_cancel = lambda _: None
        for connection, said in ((link.upstream, upstream), (link.downstream, downstream)):
            feed(connection, said, sizes)
            await turn()
            check(connection)
        link.clock.pass_by(10)
        await turn()

    asyncio.run(scenario())


@given(sayings, cuts, st.integers(0, 3))
def test_garbage_ends_a_handshake_at_worst(said: bytes, sizes: list[int], steps: int) -> None:
    async def scenario() -> None:
        connection, wire = WireConnection(terms(), clock=lambda: 0.0), Wire()
        connection.connection_made(wire)
        greeting = (
            methods.CONNECTION_START.encode(mechanisms="PLAIN"),
            methods.CONNECTION_TUNE.encode(frame_max=4096),
            methods.CONNECTION_OPEN_OK.encode(),
        )
        begun = b"".join(frames.frame(frames.METHOD, 0, method) for method in greeting[:steps])
        opening = asyncio.create_task(connection.open({}))
        feed(connection, begun + said, sizes)
        await turn()
        check(connection)
        connection.abort(TransientError("over"))
        await asyncio.wait([opening])
        assert opening.exception() is None or isinstance(opening.exception(), BrokerError)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (frames.PREFIX.pack(3, 1, 2**32 - 1) + b".", "a frame of 4294967295 bytes"),
        (frames.PREFIX.pack(1, 1, 3) + b"abcd", "doesn't end where it says"),
        (frames.frame(1, 0, b"\xff\xff\xff\xff"), "an unknown method"),
        (frames.frame(1, 1, b"\0\x3c"), "cut off"),
        (frames.frame(3, 1, b"body"), "nothing announced"),
        (frames.frame(2, 1, frames.BASIC_HEADER.pack(60, 0, 1) + b"\0\0"), "nothing announced"),
        (frames.frame(1, 1, Sent(1).deliver) + frames.frame(2, 1, b"\0\x3c"), "cut off"),
        (frames.frame(1, 1, Sent(1).deliver) * 2, "before the end of another"),
        (
            frames.frame(1, 1, Sent(1).deliver) + frames.content(1, b"\0\0", b"", 9) + frames.frame(3, 1, b"b"),
            "nothing",
        ),
        (frames.frame(1, 1, Sent(0).deliver), "delivery tag 0 came where 1 was due"),
        (frames.frame(1, 1, Sent(1).deliver[:-1]), "makes no sense"),
        (
            frames.frame(1, 1, Sent(1).deliver)
            + frames.frame(2, 1, frames.BASIC_HEADER.pack(60, 0, 1) + b"\0\0")
            + frames.frame(3, 1, b"two"),
            "longer than its header says",
        ),
        (frames.frame(2, 2, frames.BASIC_HEADER.pack(60, 0, 1) + b"\0\0"), "without a method"),
        (
            frames.frame(1, 2, methods.BASIC_DELIVER.encode())
            + frames.frame(2, 2, frames.BASIC_HEADER.pack(60, 0, 2**40) + b"\0\0"),
            "a body of 1099511627776 bytes",
        ),
        (frames.frame(1, 2, methods.QUEUE_DECLARE_OK.encode()), "answers no request"),
        (
            frames.frame(1, 1, Sent(1).deliver)
            + frames.frame(2, 1, frames.BASIC_HEADER.pack(60, 0, 10) + b"\0\0")
            + frames.frame(3, 1, b""),
            "a body frame of 0 bytes that isn't its message's last",
        ),
        (
            frames.frame(1, 2, methods.BASIC_DELIVER.encode())
            + frames.frame(2, 2, frames.BASIC_HEADER.pack(60, 0, 10) + b"\0\0")
            + frames.frame(3, 2, b""),
            "a body frame without a body",
        ),
        (frames.frame(1, 2, methods.CHANNEL_FLOW.encode(active=True)) * 11, "over 10 channel.flow in a second"),
        (frames.frame(1, 2, methods.BASIC_CANCEL.encode(consumer_tag="t")) * 11, "over 10 basic.cancel in a second"),
        (frames.frame(1, 0, methods.CONNECTION_TUNE.encode()), "connection.tune, which nothing asked for"),
        (
            frames.frame(1, 0, methods.CONNECTION_UPDATE_SECRET_OK.encode()),
            "connection.update-secret-ok, which nothing asked for",
        ),
        (frames.frame(2, 0, bytes(14)), "content on channel 0"),
        (frames.frame(7, 0, b""), "unknown kind 7"),
        (frames.PREFIX.pack(3, 2, 131_073) + b".", "a frame of 131073 bytes"),
        (frames.PREFIX.pack(1, 2, 70_000) + b".", "a frame of 70000 bytes"),
        (frames.frame(1, 2, methods.QUEUE_DECLARE_OK.encode() + bytes(70_000)), "a method of"),
    ],
)
async def test_broken_amqp_is_told_with_the_reason(said: bytes, why: str) -> None:
    link = await Link.made()
    other = ready(link.upstream)
    other.on_message = lambda _: None
    if len(said) > IDLE_BUFFER:
        feed(link.upstream, UNBLOCKED, [10])  # after which the buffer holds all of it
    feed(link.upstream, said)
    error = link.upstream.closed.result()
    assert isinstance(error, TransientError)
    assert str(error).startswith("broken AMQP: ")
    assert why in str(error)
    assert link.up.is_closed
    assert other.closed.result() is link.out.closed.result() is error


async def test_what_follows_an_error_is_not_read() -> None:
    link = await Link.made()
    feed(link.upstream, frames.frame(1, 0, methods.CONNECTION_CLOSE.encode(code=320, text="CONNECTION_FORCED")))
    [(_, method, _)] = calls(link.up.taken())
    assert method.name == "Connection.CloseOk"
    link.upstream.get_buffer(-1)[:100] = bytes(100)
    link.upstream.buffer_updated(100)
    assert "CONNECTION_FORCED" in str(link.upstream.closed.result())


async def test_a_buffer_is_large_only_where_much_comes_and_goes_with_the_connection() -> None:
    link = await Link.made()
    feed(link.upstream, frames.HEARTBEAT_FRAME * IDLE_BUFFER)
    assert len(link.upstream.get_buffer(-1)) == IDLE_BUFFER
    feed(link.upstream, UNBLOCKED, [10])
    assert len(link.upstream.get_buffer(-1)) == BUFFER
    feed(link.upstream, frames.frame(1, 0, methods.CONNECTION_CLOSE.encode(code=320, text="CONNECTION_FORCED")))
    await turn()
    assert len(link.upstream.get_buffer(-1)) == 1


async def test_a_stranger_is_recognised_by_what_it_says_first() -> None:
    fresh = WireConnection(terms())
    fresh.connection_made(Wire())
    feed(fresh, b"HTTP/1.1 400 Bad Request")
    assert isinstance(fresh.closed.result(), NotAmqpError)


async def test_a_broker_with_no_limit_of_its_own_is_given_one() -> None:
    connection, _ = await opened(frame_max=0)
    assert connection.frame_max == frames.LARGEST


async def test_headers_may_be_larger_than_the_frames_that_were_agreed_on() -> None:
    """Brokers don't cut them: a publisher may have agreed on larger frames."""
    link = await Link.made(frame_max=(4096, 131_072))
    raw = b"\x01kS" + (100_000).to_bytes(4, "big") + bytes(100_000)
    message = Sent(1, body=bytes(10_000))
    data = frames.frame(1, link.out.number, message.deliver) + frames.content(
        link.out.number, b"\x20\0" + len(raw).to_bytes(4, "big") + raw, message.body, 4096
    )
    feed(link.upstream, data, [1000] * 200)
    await turn()
    assert len(link.published()) == 1


async def test_reading_is_held_while_the_other_side_is_full_and_any_holder_is_left() -> None:
    link = await Link.made()
    steps: list[tuple[Callable[[], None], bool]] = [
        (link.downstream.pause_writing, False),
        (lambda: link.upstream.inbound.hold("another"), False),
        (link.downstream.resume_writing, False),
        (lambda: link.upstream.inbound.release("another"), True),
        (link.downstream.pause_writing, False),
        (lambda: link.downstream.starved_by(link.upstream), True),
        (lambda: link.downstream.fed_by(link.upstream), False),
        (lambda: link.downstream.connection_lost(None), True),
    ]
    for number, (step, reads) in enumerate(steps):
        step()
        assert link.up.reads is reads, number


def test_a_connection_that_is_held_is_not_taken_for_dead_and_goes_on_to_speak() -> None:
    async def scenario() -> None:
        connection, wire = await opened(heartbeat=10)
        connection.inbound.hold("full")
        await asyncio.sleep(102)
        assert not connection.closed.done()
        assert wire.taken() == frames.HEARTBEAT_FRAME * 20
        connection.inbound.release("full")
        await asyncio.sleep(19)
        assert not connection.closed.done()
        await asyncio.sleep(7)
        assert isinstance(connection.closed.result(), HeartbeatMissedError)

    in_virtual_time(scenario())


class Slow:
    """Takes frames one by one, and 12 seconds for each."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: ARG002 - the protocol's signature
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.work_for(12)
        self.taken += 1
        _, _, size = frames.PREFIX.unpack_from(buffer, at)
        return at + frames.OVERHEAD + int(size)


def test_a_connection_that_was_not_read_because_this_side_is_behind_is_not_taken_for_dead() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        connection, wire = await opened(heartbeat=10, clock=loop.time)
        channel, slow = ready(connection), Slow()
        connection.inbound.divert(channel.number, slow)
        data = frames.frame(frames.METHOD, channel.number, bytes(BUFFER // 4))
        feed(connection, data * 3)
        while not wire.reads and not connection.closed.done():
            loop.work_for(6)  # for other links
            await asyncio.sleep(0)
        assert slow.taken == 3
        await asyncio.sleep(0)
        assert not connection.closed.done(), "what came meanwhile is still in the socket"
        await asyncio.sleep(27)
        assert isinstance(connection.closed.result(), HeartbeatMissedError)

    in_virtual_time(scenario())


def test_silence_is_noticed_within_two_heartbeats_of_the_last_word() -> None:
    async def scenario() -> None:
        connection, _ = await opened(heartbeat=10)
        await asyncio.sleep(1)
        feed(connection, frames.HEARTBEAT_FRAME)
        await asyncio.sleep(19.9)
        assert not connection.closed.done()
        await asyncio.sleep(0.2)
        assert isinstance(connection.closed.result(), HeartbeatMissedError)

    in_virtual_time(scenario())


def test_an_agent_that_stood_still_takes_no_peer_for_dead_before_it_has_listened() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        connection, _ = await opened(heartbeat=10)
        await asyncio.sleep(1)
        loop.work_for(25)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not connection.closed.done(), "what came meanwhile is still in the socket"
        await asyncio.sleep(6)
        assert isinstance(connection.closed.result(), HeartbeatMissedError)

    in_virtual_time(scenario())


def test_a_connection_that_is_heard_lives() -> None:
    async def scenario() -> None:
        connection, _ = await opened(heartbeat=10)
        for _ in range(20):
            await asyncio.sleep(19)
            feed(connection, frames.HEARTBEAT_FRAME)
        assert not connection.closed.done()
        connection.abort(TransientError("over"))

    in_virtual_time(scenario())


def test_closing_a_channel_waits_no_longer_than_patience_and_the_number_stays_taken() -> None:
    async def scenario() -> None:
        connection, _ = await opened()
        channel = ready(connection)
        await channel.close()
        assert asyncio.get_running_loop().time() == CLOSE_PATIENCE
        assert channel.closed.done()
        assert connection.is_spoiled
        feed(connection, frames.frame(1, channel.number, Sent(1).deliver) + frames.content(1, b"\0\0", b"late", 4096))
        assert not connection.closed.done()
        assert connection.begin_channel().number != channel.number

    in_virtual_time(scenario())


async def test_a_channel_that_the_broker_closes_midway_is_left_without_a_word() -> None:
    link = await Link.made()
    feed(link.upstream, link.delivery(Sent(1, body=bytes(3_000_000)))[:-1])
    await turn()
    link.down.taken()
    await link.answer(methods.CHANNEL_CLOSE, code=404, text="NOT_FOUND", class_id=60, method_id=40)
    assert link.down.taken() == b""
    error = link.into.closed.result()
    assert isinstance(error, ChannelClosedError) and error.code == 404
    with pytest.raises(ChannelClosedError):
        link.into.send(methods.CHANNEL_CLOSE, code=200)
    feed(link.upstream, b"\xce" + link.delivery(Sent(2)))
    await turn()
    assert link.down.taken() == b""


async def test_channels_are_open_until_they_are_not() -> None:
    connection, _ = await opened()
    channel = ready(connection)
    usable = [channel.is_usable]
    closing = asyncio.create_task(channel.close())
    await turn()
    usable.append(channel.is_usable)
    feed(connection, frames.frame(1, channel.number, methods.CHANNEL_CLOSE_OK.encode()))
    await closing
    assert [*usable, channel.is_usable] == [True, False, False]


async def test_a_connection_that_is_held_can_be_closed() -> None:
    link = await Link.made()
    link.downstream.pause_writing()
    closing = asyncio.create_task(link.upstream.close(TransientError("closed by the agent")))
    await turn()
    assert link.up.reads
    assert [method.name for method in link.settled()] == ["Connection.Close"]
    feed(link.upstream, link.delivery(Sent(1)) + frames.frame(1, 0, methods.CONNECTION_CLOSE_OK.encode()))
    await turn()
    assert link.up.is_closed
    assert link.down.taken() == b""
    link.upstream.connection_lost(None)
    await closing


async def test_a_peer_that_doesnt_take_the_farewell_is_left() -> None:
    connection, wire = await opened()
    closing = asyncio.create_task(connection.close(TransientError("closed by the agent")))
    await turn()
    connection.connection_lost(ConnectionResetError("reset"))
    await closing
    assert wire.is_closed
    await connection.close(TransientError("again"))


async def test_nothing_holds_a_connection_that_was_closed_in_order() -> None:
    connection, wire = await opened()
    closing = asyncio.create_task(connection.close(TransientError("closed by the agent")))
    await turn()
    feed(connection, frames.frame(1, 0, methods.CONNECTION_CLOSE_OK.encode()))
    await turn()
    connection.connection_lost(None)
    await closing
    left = weakref.ref(wire)
    del connection, wire, closing
    gc.collect()
    assert left() is None
