"""PendingRequests that are not answered: how long they may wait, what renews that, and what their end takes with it."""

from __future__ import annotations

import asyncio

import pytest

from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, MethodTooLargeError
from agent.amqp.wire.connection import LOOKS, WireConnection
from agent.amqp.wire.login import PATIENCE
from agent.core import fields
from agent.errors import FailureKind, PermanentError, TransientError
from tests.unit.amqp.wire.link import calls, feed, opened, ready, turn
from tests.unit.amqp.wire.virtual_loop import in_virtual_time

LOOK = PATIENCE / LOOKS
"""The grain of all times here: how often questions are looked at."""


def ask(channel: Channel, queue: str = "a queue") -> asyncio.Future[methods.Call]:
    return channel.ask(methods.QUEUE_DECLARE, queue=queue, passive=True)


def answer(connection: WireConnection, channel: Channel) -> None:
    feed(connection, frames.frame(frames.METHOD, channel.number, methods.QUEUE_DECLARE_OK.encode()))


def test_a_question_without_an_answer_ends_its_channel_and_is_named() -> None:
    async def scenario() -> None:
        connection, wire = await opened()
        silent, other = ready(connection), ready(connection)
        wire.taken()
        question, behind = ask(silent), ask(silent)
        with pytest.raises(TransientError) as failed:
            await question
        assert str(failed.value) == "upstream origin: no answer to queue.declare 'a queue' within 30 s"
        assert PATIENCE <= asyncio.get_running_loop().time() <= PATIENCE + LOOK
        assert behind.exception() is silent.closed.result() is failed.value
        assert [(number, method.name) for number, method, _ in calls(wire.taken())] == [
            (silent.number, "Queue.Declare"),
            (silent.number, "Queue.Declare"),
            (silent.number, "Channel.Close"),
        ]
        answer(connection, silent)  # late, and nobody's
        assert connection.is_spoiled
        assert other.is_usable and not connection.closed.done()
        assert connection.begin_channel().number not in {silent.number, other.number}

    in_virtual_time(scenario())


def test_each_answer_renews_the_patience_for_those_behind_it() -> None:
    async def scenario() -> None:
        connection, _ = await opened()
        channel = ready(connection)
        asked = [ask(channel) for _ in range(5)]
        for question in asked:
            await asyncio.sleep(PATIENCE - LOOK)
            answer(connection, channel)
            await question
        assert channel.is_usable

    in_virtual_time(scenario())


@pytest.mark.parametrize("why", ["held", "blocked"])
def test_nothing_is_overdue_while_no_answer_can_come(why: str) -> None:
    async def scenario() -> None:
        connection, _ = await opened()
        channel = ready(connection)
        question = ask(channel)
        if why == "held":
            connection.inbound.hold("full")
        else:
            feed(connection, frames.frame(frames.METHOD, 0, methods.CONNECTION_BLOCKED.encode(reason="alarm")))
        await asyncio.sleep(10 * PATIENCE)
        if why == "held":
            connection.inbound.release("full")
        else:
            feed(connection, frames.frame(frames.METHOD, 0, methods.CONNECTION_UNBLOCKED.encode()))
        await asyncio.sleep(PATIENCE - LOOK)
        assert not question.done()
        await asyncio.sleep(3 * LOOK)
        assert isinstance(question.exception(), TransientError)

    in_virtual_time(scenario())


def test_an_alarm_is_no_excuse_where_nothing_is_published() -> None:
    async def scenario() -> None:
        connection, _ = await opened()
        connection.answers_while_blocked = True
        channel = ready(connection)
        question = ask(channel)
        feed(connection, frames.frame(frames.METHOD, 0, methods.CONNECTION_BLOCKED.encode(reason="alarm")))
        await asyncio.sleep(PATIENCE + 3 * LOOK)
        assert isinstance(question.exception(), TransientError)

    in_virtual_time(scenario())


def test_a_channel_whose_closing_is_not_answered_costs_no_more_than_its_number() -> None:
    async def scenario() -> None:
        connection, wire = await opened()
        channel = ready(connection)
        wire.taken()
        channel.leave()
        await asyncio.sleep(PATIENCE + 2 * LOOK)
        assert channel.closed.done() and connection.is_spoiled
        assert [method.name for _, method, _ in calls(wire.taken())] == ["Channel.Close"]

    in_virtual_time(scenario())


async def test_a_method_that_fits_into_no_frame_is_refused_and_nothing_is_sent() -> None:
    connection, wire = await opened(frame_max=4096)
    channel = ready(connection)
    wire.taken()
    arguments = (("x", fields.text("y" * 5_000)),)
    for say in (channel.ask, channel.ask_soon):
        with pytest.raises(MethodTooLargeError, match=r"^upstream origin: exchange.bind takes 50\d\d bytes, .* 4096"):
            say(methods.EXCHANGE_BIND, source="s", arguments=arguments)
    assert issubclass(MethodTooLargeError, PermanentError)
    await turn()
    assert wire.taken() == b""
    question = ask(channel)
    answer(connection, channel)
    await question


def test_an_upstream_that_reads_no_acknowledgements_is_not_read_and_then_left() -> None:
    async def scenario() -> None:
        upstream, wire = await opened()
        downstream, _ = await opened()
        downstream.fed_by(upstream)
        seen = []
        for step in (upstream.pause_writing, upstream.resume_writing, upstream.pause_writing):
            step()
            seen.append(wire.reads)
        assert seen == [False, True, False]
        await asyncio.sleep(PATIENCE + 2 * LOOK)
        assert str(upstream.closed.result()) == "the broker has read nothing for 30 s"
        assert upstream.closed.result().failure.kind is FailureKind.NOT_READING
        assert not downstream.closed.done()

    in_virtual_time(scenario())


async def test_a_peer_that_asks_and_does_not_read_is_left() -> None:
    connection, _ = await opened()
    connection.pause_writing()
    for _ in range(1_001):
        channel = ready(connection)
        feed(connection, frames.frame(frames.METHOD, channel.number, methods.CHANNEL_CLOSE.encode(code=404)))
        await turn()
        if connection.closed.done():
            break
    assert "reads none of the answers" in str(connection.closed.result())
