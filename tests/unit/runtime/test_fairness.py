"""Soundings of a shared connection: a channel each, closed again whatever became of it."""

from __future__ import annotations

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import ChannelPool, Shared
from agent.amqp.wire import frames, methods
from agent.amqp.wire.login import Terms
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism, parse
from agent.core.model import Link
from agent.runtime.fairness import LATE, PATIENCE, Fairness
from tests.unit.amqp.wire.link import Wire, calls, feed, opened, turn
from tests.unit.status.test_board import LINK


class Waiting:
    """A link whose oldest message waits for its confirm."""

    in_flight = 7

    def __init__(self, local: Shared) -> None:
        self.link: Link = LINK
        self.local: Shared | None = local
        self.waited = LATE
        self.set_apart_at: float | None = None

    def waits(self, now: float) -> float:  # noqa: ARG002 - as a link has it
        return self.waited

    def set_apart(self, now: float) -> None:
        self.set_apart_at = now


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
    assert link.set_apart_at is None


async def test_where_the_broker_does_not_answer_the_link_is_set_apart() -> None:
    local, _ = await shared()
    link = Waiting(local)
    fairness = Fairness()
    fairness.tick([link], 0.0)
    fairness.tick([link], PATIENCE)
    assert link.set_apart_at == PATIENCE
    assert local.connection.is_closed
