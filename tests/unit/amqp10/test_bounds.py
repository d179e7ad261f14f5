"""Whatever a peer says, and however it cuts it, the loop, the memory and other links are spared."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from agent.amqp.wire import frames as wire
from agent.amqp.wire.budget import TURN
from agent.amqp.wire.ends import HeartbeatMissedError
from agent.amqp10 import frames, performatives, receiving
from tests.unit.amqp.wire.link import Clock, turn
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.amqp10.peer import MUCH, Peer, Source, Target, message, said, transfer


class Slow(Clock):
    """Each look at it takes a millisecond."""

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


ACCEPTED = performatives.ACCEPTED.encode()
ECHO = said(
    performatives.FLOW,
    next_incoming_id=0,
    incoming_window=MUCH,
    next_outgoing_id=0,
    outgoing_window=MUCH,
    handle=0,
    delivery_count=0,
    link_credit=100,
    echo=True,
)


async def test_a_flood_takes_no_more_than_a_turn_at_a_time() -> None:
    target = await Target.made(clock=Slow())
    await target.peer.is_read()
    target.peer.heard()
    target.peer.feed(ECHO * 100)
    answered = len(target.peer.heard())
    assert 0 < answered <= TURN / 0.001
    assert not target.peer.socket.reads, "more would pile up"
    await target.peer.is_read()
    assert answered + len(target.peer.heard()) == 100
    await target.publish(b"a")
    assert len(target.transfers()) == 1


async def test_what_comes_while_something_is_left_keeps_its_place() -> None:
    source = await Source.made(clock=Slow(), prefetch=100)
    await source.peer.is_read()
    source.peer.feed(b"".join(transfer(number, message(b"%d" % number)) for number in range(20)))
    source.peer.feed(b"".join(transfer(number, message(b"%d" % number)) for number in range(20, 40)))
    for _ in range(50):
        await turn()
    assert source.bodies == [message(b"%d" % number) for number in range(40)]


async def test_a_message_of_endless_frames_takes_as_much_memory_as_it_has_bytes() -> None:
    source = await Source.made()
    many = 10_000
    tracemalloc.start()
    try:
        source.peer.feed(transfer(0, b"", more=True) * 1_000)
        data = transfer(0, b"x", more=True) * 1_000
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(many // 1_000):
            source.peer.feed(data)
        assert tracemalloc.get_traced_memory()[0] - before < 3 * many
    finally:
        tracemalloc.stop()


async def test_a_message_larger_than_any_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "LARGEST_MESSAGE", 1_000)
    source = await Source.made()
    source.peer.feed(transfer(0, bytes(600), more=True) * 2)
    assert "a message of more than 1000 bytes" in source.peer.error


async def test_a_message_in_one_transfer_may_be_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "LARGEST_MESSAGE", 1_000)
    source = await Source.made()
    source.peer.feed(transfer(0, bytes(1_001), message_format=None))
    assert "a message of more than 1000 bytes" in source.peer.error


async def test_large_messages_are_let_go_once_they_are_through() -> None:
    size = 4_000_000
    source, target = await Source.made(), await Target.made()
    body = message(bytes(size))
    tracemalloc.start()
    try:
        for at in range(0, len(body), 100_000):
            source.peer.feed(transfer(0, body[at : at + 100_000], more=at + 100_000 < len(body)))
            await turn()
        assert source.bodies == [body]
        await source.deliver(1)  # the channel keeps the last one
        source.came.clear()
        await target.publish(body)
        assert len(target.transfers()) > 1
        del body
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < size // 4
    finally:
        tracemalloc.stop()


async def test_nothing_waits_for_a_collection_that_came_over_a_connection() -> None:
    size = 4_000_000
    source, target = await Source.made(), await Target.made(credit=0)
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(size // 100_000):
            source.peer.feed(transfer(0, bytes(100_000), more=True))
        await target.publish(message(bytes(size)))
        for each in (source.peer, target.peer):
            await each.lose()
        assert tracemalloc.get_traced_memory()[0] < size // 4
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_frames_byte_by_byte_are_read_as_those_in_one_piece() -> None:
    source = await Source.made()
    data = b"".join(transfer(number, message(b"%d" % number)) for number in range(3))
    source.peer.feed(data, [1] * len(data))
    await turn()
    assert source.bodies == [message(b"%d" % number) for number in range(3)]


@pytest.mark.parametrize("what", [frames.EMPTY, transfer(0, b"x", more=True)])
def test_a_peer_that_speaks_lives_whatever_it_says(what: bytes) -> None:
    async def scenario() -> None:
        source = await Source.made(heartbeat=10)
        for _ in range(10):
            await asyncio.sleep(19)
            source.peer.feed(what)
        assert not source.peer.wire.closed.done()
        await asyncio.sleep(21)
        assert isinstance(source.peer.wire.closed.result(), HeartbeatMissedError)
        await source.peer.lose()

    in_virtual_time(scenario())


async def test_empty_frames_cost_no_more_than_one() -> None:
    peer = await Peer.made().open()
    fed = bytearray()
    was = peer.wire.buffer_updated
    peer.wire.buffer_updated = lambda size: fed.extend(bytes(size)) or was(size)  # type: ignore[func-returns-value, method-assign]
    peer.feed(frames.EMPTY * 10_000)
    assert len(fed) == len(wire.HEARTBEAT_FRAME)
