"""The tick that all links share, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import ChannelPool, Shared
from agent.amqp.data.splice import Counts
from agent.amqp.wire import frames, methods
from agent.amqp.wire.login import Terms
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism, parse
from agent.core.links.lifecycle import LinkState
from agent.core.model import Link
from agent.errors import FailureKind
from agent.runtime.ticker import EVERY, LATE, PATIENCE, Fairness, tick_links
from agent.status.board import Board
from agent.status.entry import Gauges
from tests.unit.amqp.wire.link import Wire, calls, feed, opened, turn
from tests.unit.amqp.wire.virtual_loop import VirtualLoop, in_virtual_time
from tests.unit.status.test_board import LINK, Clock

FIRST, SECOND = replace(LINK, id="00000001"), replace(LINK, id="00000002")


class Beaten:
    """A link that moves whenever `moves` says so, and fails where it is None."""

    in_flight = 0
    local: Shared | None = None

    def __init__(self, link: Link, moves: list[bool | None]) -> None:
        self.link = link
        self.moves = moves
        self.at: list[float] = []

    def tick(self, now: float) -> bool:
        self.at.append(now)
        moved = self.moves.pop(0)
        if moved is None:
            raise ValueError("this link only")
        return moved

    def waits(self, now: float) -> float:  # noqa: ARG002 - as a link has it
        return 0.0

    def dedicate_connections(self) -> None:
        raise AssertionError("nobody waits")


def beaten(*links: Beaten, beats: int) -> list[tuple[str, ...]]:
    """Which links the board's readers are told of, tick by tick."""
    told: list[tuple[str, ...]] = []

    async def live() -> None:
        board = Board(Clock(), "dc2-a")
        for each in links:
            board.put(each.link, LinkState(), Counts(), Gauges)
        with board.feed() as feed:
            ticking = asyncio.create_task(tick_links(lambda: [(each.link.id, each) for each in links], board))
            await asyncio.sleep(EVERY / 2)
            for _ in range(beats):
                await asyncio.sleep(EVERY)
                told.append(feed.take().moved)
            ticking.cancel()

    in_virtual_time(live())
    return told


def test_each_link_has_its_tick_and_only_those_that_moved_are_told() -> None:
    first, second = Beaten(FIRST, [True, False, True]), Beaten(SECOND, [False, False, True])
    assert beaten(first, second, beats=3) == [(FIRST.id,), (), (FIRST.id, SECOND.id)]
    assert first.at == [EVERY, 2 * EVERY, 3 * EVERY]


def test_one_that_fails_stops_none_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Beaten(FIRST, [None, True]), Beaten(SECOND, [True, True])
    assert beaten(first, second, beats=2) == [(SECOND.id,), (FIRST.id, SECOND.id)]
    assert "this link only" in capsys.readouterr().out


def test_an_agent_that_stands_still_says_for_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    class Slow(Beaten):
        """Keeps the loop for three seconds, once."""

        def tick(self, now: float) -> bool:
            loop = asyncio.get_running_loop()
            if not self.at and isinstance(loop, VirtualLoop):
                loop.call_later(EVERY / 2, loop.work_for, 3.0)
            return super().tick(now)

    beaten(Slow(FIRST, [False] * 8), beats=3)
    assert capsys.readouterr().out.count("the agent stood still") == 1


class Waiting:
    """A link whose oldest message waits for its confirm."""

    in_flight = 7

    def __init__(self, local: Shared) -> None:
        self.link: Link = LINK
        self.local: Shared | None = local
        self.waited = LATE
        self.dedicated = 0

    def waits(self, now: float) -> float:  # noqa: ARG002 - as a link has it
        return self.waited

    def dedicate_connections(self) -> None:
        self.dedicated += 1


async def shared() -> tuple[Shared, Wire]:
    wire, socket = await opened()
    terms = Terms("downstream h:5672", "/", "u", Secret("p"), (Mechanism.PLAIN,), 0)
    connection = Connection(parse("amqp://h"), wire, terms)
    return Shared(connection, ChannelPool(connection), users=2), socket


def said(socket: Wire) -> list[str]:
    return [method.name for _, method, _ in calls(socket.taken())]


async def test_a_channel_that_sounded_is_closed_whether_it_was_answered_or_nobody_waits_any_more() -> None:
    local, socket = await shared()
    wire, link = local.connection.wire, Waiting(local)
    free = wire.free_channels
    fairness = Fairness()
    for number in range(1, 4):
        fairness.tick([link], 0.0)
        assert said(socket) == ["Channel.Open"]
        feed(wire, frames.frame(frames.METHOD, number, methods.CHANNEL_OPEN_OK.encode()))
        link.waited = 0.0 if number == 2 else LATE
        fairness.tick([link], 1.0)
        assert said(socket) == ["Channel.Close"]
        feed(wire, frames.frame(frames.METHOD, number, methods.CHANNEL_CLOSE_OK.encode()))
        await turn()
        assert wire.free_channels == free
        link.waited = LATE
    assert link.dedicated == 0


async def test_where_the_broker_does_not_answer_the_link_is_set_apart() -> None:
    local, _ = await shared()
    link = Waiting(local)
    fairness = Fairness()
    fairness.tick([link], 0.0)
    assert link.dedicated == 0
    fairness.tick([link], PATIENCE)
    assert link.dedicated == 1
    assert local.connection.is_closed
    assert local.connection.wire.closed.result().failure.kind is FailureKind.NOT_READING
