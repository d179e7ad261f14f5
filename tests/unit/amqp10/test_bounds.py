"""Whatever a peer says, and however it cuts it, the loop, the memory and other links are spared."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from agent.amqp.wire import frames as wire
from agent.amqp.wire.budget import TURN
from agent.amqp.wire.ends import HeartbeatMissedError
from agent.amqp10 import performatives, receiving
from agent.errors import TransientError
from tests.unit.amqp.wire.link import Clock, turn
from tests.unit.amqp.wire.virtual_loop import VirtualLoop, in_virtual_time
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


@pytest.mark.parametrize("what", [performatives.EMPTY, transfer(0, b"x", more=True)])
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

    def updated(nbytes: int) -> None:
        fed.extend(bytes(nbytes))
        was(nbytes)

    peer.wire.buffer_updated = updated  # type: ignore[method-assign]
    peer.feed(performatives.EMPTY * 10_000)
    assert len(fed) == len(wire.HEARTBEAT_FRAME)


async def test_nothing_is_taken_off_the_socket_while_the_data_path_takes_nothing() -> None:
    """What was translated by then keeps its place."""
    source = await Source.made(prefetch=1_000)
    source.peer.wire.inbound.hold("full")
    assert not source.peer.socket.reads
    source.peer.feed(b"".join(transfer(number, message(b"%d" % number)) for number in range(300)))
    source.peer.feed(transfer(300, message(bytes(200_000)), more=True)[:100_000])
    await turn()
    assert source.came == []
    assert not source.peer.socket.reads
    source.settle(0, multiple=True)  # and what is said meanwhile is said
    source.peer.wire.inbound.release("full")
    await source.peer.is_read()
    assert source.bodies == [message(b"%d" % number) for number in range(300)]


async def test_a_socket_that_is_closed_without_a_word_is_no_error() -> None:
    source = await Source.made()

    def closed() -> None:
        raise RuntimeError("closed")

    source.peer.wire.inbound.hold("full")
    source.peer.socket.resume_reading = closed  # type: ignore[method-assign]
    source.peer.wire.inbound.release("full")
    await turn()
    await source.peer.lose()


async def test_nothing_is_read_once_the_connection_was_given_up() -> None:
    source = await Source.made()
    source.peer.wire.abort(TransientError("given up"))
    assert source.peer.socket.is_closed
    source.peer.feed(transfer(0, message(b"x")) * 100)
    await source.peer.lose()
    assert source.came == []
    assert source.peer.error == "given up"


@pytest.mark.parametrize("how", ["abort", "lost", "closed by the peer", "closed"])
def test_no_timer_is_left_however_a_connection_ends(how: str) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        target = await Target.made(credit=0, heartbeat=10, open_with={"idle_time_out": 10_000})
        await target.publish(b"x" * 10)
        await asyncio.sleep(0.5)  # it is to be shown as blocked soon
        peer = target.peer
        assert loop.timers >= 4
        if how == "abort":
            peer.wire.abort(TransientError("given up"))
        elif how == "closed by the peer":
            peer.say(performatives.CLOSE)
        elif how == "closed":
            closing = asyncio.create_task(peer.wire.close(TransientError("done")))
            await turn()
            peer.say(performatives.CLOSE)
            peer.translator.connection_lost(None)
            await closing
        await peer.lose()
        assert loop.timers == 0

    in_virtual_time(scenario())


def test_the_peer_hears_something_in_half_of_each_interval() -> None:
    async def scenario() -> None:
        target = await Target.made(heartbeat=10)
        for _ in range(10):
            await asyncio.sleep(10)
            target.peer.feed(performatives.EMPTY)
        target.peer.heard()
        assert target.peer.beats == 20
        await target.peer.lose()

    in_virtual_time(scenario())
