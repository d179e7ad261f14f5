"""What was written is kept until it is confirmed, by reference and within bounds."""

from __future__ import annotations

from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.quarantined import Room
from agent.amqp.data.splice import WHOLE
from agent.amqp.wire import methods
from agent.core.model import AckMode
from tests.unit.amqp.wire.link import Link, Sent, contents, feed, turn

LIMIT = 4 * WHOLE


def held_buffers(limit: int = LIMIT) -> HeldBuffers:
    return HeldBuffers(limit, Room(2 * LIMIT))


def body_of(link: Link, held: HeldBuffers, number: int) -> bytes | None:
    found = held.moved_out(number)
    return None if found is None else contents(found.frames, link.into.number, link.downstream.frame_max)[0].body


async def test_each_message_can_be_read_until_it_is_confirmed() -> None:
    held = held_buffers()
    link = await Link.made(held=held)
    bodies = [b"", b"b", bytes(200_000), b"last"]
    await link.deliver(*(Sent(tag, body=body) for tag, body in enumerate(bodies, start=1)))
    await link.deliver(Sent(5, body=b"fifth"))
    assert [body_of(link, held, number) for number in (0, 1, 2, 3, 4, 6)] == [None, *bodies, None]
    await link.answer(methods.BASIC_ACK, delivery_tag=4, multiple=True)
    assert [body_of(link, held, number) for number in (4, 5)] == [None, b"fifth"]
    await link.answer(methods.BASIC_ACK, delivery_tag=5)
    assert held.size == 0


async def test_what_comes_in_parts_is_held_whole() -> None:
    held = held_buffers()
    link = await Link.made(held=held)
    data = b"".join(
        link.delivery(Sent(tag, body=body)) for tag, body in enumerate([b"a", bytes(WHOLE + 1), b"c"], start=1)
    )
    feed(link.upstream, data, [500_000, 500_000])
    await turn()
    assert link.target.confirms.in_flight == 3
    assert [body_of(link, held, number) for number in (1, 2, 3)] == [b"a", bytes(WHOLE + 1), b"c"]


async def test_no_more_is_held_than_the_limit_and_the_newest_stays() -> None:
    held = held_buffers(10_000)
    link = await Link.made(held=held)
    for tag in range(1, 101):
        await link.deliver(Sent(tag, body=bytes(1_000)))
        assert held.size <= 10_000
    assert body_of(link, held, 1) is None
    assert body_of(link, held, 100) == bytes(1_000)
    await link.deliver(Sent(101, body=bytes(20_000)), Sent(102, body=b"b"))
    assert (held.size, held.moved_out(101), held.moved_out(102)) == (0, None, None)
    await link.deliver(Sent(103, body=b"b"))
    assert body_of(link, held, 103) == b"b"


async def test_nothing_is_held_where_nothing_is_confirmed() -> None:
    held = held_buffers()
    link = await Link.made(held=held, ack_mode=AckMode.ON_PUBLISH)
    await link.deliver(Sent(1, body=b"b"))
    assert (held.size, link.target.held) == (0, None)


async def test_links_share_the_room() -> None:
    room = Room(30_000)
    mine, other = HeldBuffers(LIMIT, room), HeldBuffers(LIMIT, room)
    links = [await Link.made(held=mine), await Link.made(held=other)]
    for tag in range(1, 51):
        for link in links:
            await link.deliver(Sent(tag, body=bytes(1_000)))
    assert mine.size + other.size <= 30_000
    assert other.moved_out(50) is not None
    mine.release()
    other.release()
    assert room.take(30_000), "all of it is free again"
