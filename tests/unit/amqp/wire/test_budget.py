"""What one peer sends is worked through a turn of the loop at a time, and nothing of it is lost or overtaken."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from agent.amqp.wire import frames, methods
from agent.amqp.wire.budget import LARGEST_PORTION, SMALLEST_PORTION, TURN, WAKING, Budget, Turn
from agent.amqp.wire.inbound import BUFFER
from agent.errors import TransientError
from tests.unit.amqp.wire.link import Link, Sent, feed, opened, ready, turn


class Ticking:
    """Each look at the clock is `step` later than the last one."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def cancels(channel: int, count: int) -> bytes:
    """Of consumers 1, 2, 3 …"""
    return b"".join(
        frames.frame(frames.METHOD, channel, methods.BASIC_CANCEL.encode(consumer_tag=str(number), nowait=True))
        for number in range(1, count + 1)
    )


async def test_a_flood_is_read_a_turn_at_a_time_in_order() -> None:
    connection, wire = await opened(clock=Ticking(TURN / 10))
    channel, cancelled = ready(connection), list[int]()
    await turn()
    channel.on_cancel = lambda tag: cancelled.append(int(tag))
    feed(connection, cancels(channel.number, 100))
    seen = [len(cancelled)]
    while len(cancelled) < 100:
        assert not wire.reads
        await asyncio.sleep(0)
        seen.append(len(cancelled))
    assert cancelled == list(range(1, 101))
    assert all(0 < after - before <= 10 for before, after in pairwise(seen))
    await turn()
    assert wire.reads


async def test_answers_wake_few_tasks_in_one_turn_however_fast_they_are_read() -> None:
    connection, _ = await opened(clock=Ticking(0))
    channel, cancelled = ready(connection), list[int]()
    await turn()
    channel.on_cancel = lambda tag: cancelled.append(int(tag))
    feed(connection, cancels(channel.number, 100))
    seen = [len(cancelled)]
    while len(cancelled) < 100:
        await asyncio.sleep(0)
        seen.append(len(cancelled))
    assert max(after - before for before, after in pairwise([0, *seen])) <= TURN / WAKING


async def test_what_was_put_off_waits_while_reading_is_held() -> None:
    connection, wire = await opened(clock=Ticking(2 * TURN))
    channel, cancelled = ready(connection), list[int]()
    await turn()
    channel.on_cancel = lambda tag: cancelled.append(int(tag))
    feed(connection, cancels(channel.number, 10))
    connection.inbound.hold("full")
    await turn()
    assert len(cancelled) == 1
    connection.inbound.release("full")
    assert not wire.reads
    for _ in range(15):
        await asyncio.sleep(0)
    assert len(cancelled) == 10
    assert wire.reads


async def test_a_connection_that_is_behind_can_be_closed() -> None:
    connection, wire = await opened(clock=Ticking(2 * TURN))
    channel = ready(connection)
    await turn()
    feed(connection, cancels(channel.number, 100))
    closing = asyncio.create_task(connection.close(TransientError("closed by the agent"), patience=0))
    await turn()
    connection.connection_lost(None)
    await closing
    assert wire.is_closed


async def test_a_large_buffer_goes_with_its_frame() -> None:
    link = await Link.made()
    raw = b"\x01kS" + (1_000_000).to_bytes(4, "big") + bytes(1_000_000)
    header = b"\x20\0" + len(raw).to_bytes(4, "big") + raw
    data = frames.frame(1, link.out.number, Sent(1).deliver) + frames.content(link.out.number, header, b"x", 4096)
    feed(link.upstream, data[:500_000])
    assert len(link.upstream.get_buffer(-1)) > BUFFER
    feed(link.upstream, data[500_000:])
    assert len(link.upstream.get_buffer(-1)) == BUFFER
    assert link.counts.unpublishable


def test_portions_shrink_for_what_is_slow_and_grow_again() -> None:
    clock = Ticking(0)
    turn = Turn(lambda _: None)
    budget = Budget(clock, turn)
    budget.start()
    clock.step = 4 * TURN
    assert budget.is_spent()
    assert budget.portion == LARGEST_PORTION // 4
    clock.step = 1_000 * TURN
    assert budget.is_spent()
    assert budget.portion == SMALLEST_PORTION
    clock.step = TURN / 10
    turn.spent = 0.0
    assert not any(budget.is_spent() for _ in range(8))
    assert budget.portion == LARGEST_PORTION
    assert any(budget.is_spent() for _ in range(3))


async def test_connections_share_a_turn() -> None:
    cancelled, connections = list[int](), [(await opened(clock=Ticking(TURN / 10)))[0] for _ in range(50)]
    channels = [ready(connection) for connection in connections]
    await turn()
    for channel in channels:
        channel.on_cancel = lambda tag: cancelled.append(int(tag))
    for connection, channel in zip(connections, channels, strict=True):
        feed(connection, cancels(channel.number, 10))
    seen = [len(cancelled)]
    while len(cancelled) < 500:
        await asyncio.sleep(0)
        seen.append(len(cancelled))
    assert max(after - before for before, after in pairwise([0, *seen])) <= 10
