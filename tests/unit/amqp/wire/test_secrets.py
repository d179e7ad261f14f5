"""Another password or token on an open connection."""

from __future__ import annotations

import asyncio

import pytest

from agent.amqp.connect import Connection
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import UnansweredError
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.login import PATIENCE
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import parse
from agent.errors import BrokerError, TransientError
from tests.unit.amqp.wire.link import calls, feed, opened, terms, turn
from tests.unit.amqp.wire.virtual_loop import in_virtual_time

FORMER, RENEWED = "f0rmer-secret", "r3newed-secret"
OK = frames.frame(frames.METHOD, 0, methods.CONNECTION_UPDATE_SECRET_OK.encode())


def over(wire: WireConnection) -> Connection:
    return Connection(parse("amqp://u:p@there"), wire, terms())


async def updating(wire: WireConnection, secret: str = RENEWED) -> asyncio.Task[None]:
    task = asyncio.create_task(over(wire).update_secret(Secret(secret)))
    await turn()
    return task


async def test_the_secret_is_sent_and_its_acceptance_awaited() -> None:
    connection, wire = await opened()
    task = await updating(connection)
    [(channel, method, _)] = calls(wire.taken())
    assert (channel, method.name) == (0, "Connection.UpdateSecret")
    sent = dict(method)
    assert sent["new_secret"] in (RENEWED, RENEWED.encode())
    assert not task.done()
    feed(connection, OK)
    await task
    assert not connection.closed.done()


async def test_several_are_accepted_in_their_order() -> None:
    connection, _ = await opened()
    first, second = await updating(connection), await updating(connection)
    feed(connection, OK)
    await turn()
    assert (first.done(), second.done()) == (True, False)
    feed(connection, OK)
    await second


def test_what_is_answered_too_late_harms_nothing() -> None:
    async def scenario() -> None:
        connection, _ = await opened()
        with pytest.raises(TransientError, match="the former password or token stays in use") as caught:
            await over(connection).update_secret(Secret(RENEWED))
        assert isinstance(caught.value.__cause__, UnansweredError)
        assert asyncio.get_running_loop().time() == PATIENCE
        again = await updating(connection)
        feed(connection, OK)
        await turn()
        assert not again.done()  # it answers the first
        feed(connection, OK)
        await again
        assert not connection.closed.done()
        connection.abort(TransientError("over"))

    in_virtual_time(scenario())


async def test_what_the_broker_says_of_it_shows_neither_secret() -> None:
    connection, wire = await opened(password=FORMER)
    task = await updating(connection)
    text = f"NOT_ALLOWED - {FORMER} was good and {RENEWED} is not"
    feed(connection, frames.frame(frames.METHOD, 0, methods.CONNECTION_CLOSE.encode(code=530, text=text)))
    with pytest.raises(BrokerError, match=r"NOT_ALLOWED - \[redacted\] was good and \[redacted\] is not"):
        await task
    assert [method.name for _, method, _ in calls(wire.taken())] == ["Connection.UpdateSecret", "Connection.CloseOk"]


async def test_a_connection_that_is_lost_ends_the_wait() -> None:
    connection, _ = await opened()
    task = await updating(connection)
    connection.connection_lost(ConnectionResetError("reset"))
    with pytest.raises(BrokerError, match="the connection was lost"):
        await task
