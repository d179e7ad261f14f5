"""Whatever a peer says, and however it cuts it, the loop, the memory and other links are spared."""

from __future__ import annotations

from agent.amqp.wire.budget import TURN
from agent.amqp10 import performatives
from tests.unit.amqp.wire.link import Clock, turn
from tests.unit.amqp10.peer import MUCH, Peer, Source, Target, message, said, transfer


class Slow(Clock):
    """Each look at it takes a millisecond."""

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


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


async def until(peer: Peer, *, turns: int = 200) -> None:
    for _ in range(turns):
        await turn()
        if peer.socket.reads:
            return
    raise AssertionError("it never reads again")


async def test_a_flood_takes_no_more_than_a_turn_at_a_time() -> None:
    target = await Target.made(clock=Slow())
    await until(target.peer)
    target.peer.heard()
    target.peer.feed(ECHO * 100)
    answered = len(target.peer.heard())
    assert 0 < answered <= TURN / 0.001
    assert not target.peer.socket.reads, "more would pile up"
    await until(target.peer)
    assert answered + len(target.peer.heard()) == 100
    await target.publish(b"a")
    assert len(target.transfers()) == 1


async def test_what_comes_while_something_is_left_keeps_its_place() -> None:
    source = await Source.made(clock=Slow(), prefetch=100)
    await until(source.peer)
    source.peer.feed(b"".join(transfer(number, message(b"%d" % number)) for number in range(20)))
    source.peer.feed(b"".join(transfer(number, message(b"%d" % number)) for number in range(20, 40)))
    for _ in range(50):
        await turn()
    assert source.bodies == [message(b"%d" % number) for number in range(40)]
