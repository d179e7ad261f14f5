"""Single questions, each on a channel of its own, and a refusal as an operator's error."""

from __future__ import annotations

from typing import Any

from agent.amqp.connect import Connection
from agent.amqp.failures import ACCESS_REFUSED, PRECONDITION_FAILED, one_line
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call, Method
from agent.errors import BrokerError, PermanentError, TransientError


async def attempt(connection: Connection, method: Method, answer: Method, **values: Any) -> Call | ChannelClosedError:
    """One question on a channel of its own, which a refusal closes."""
    channel = connection.wire.begin_channel()
    try:
        return await channel.ask(method, answer, **values)
    except ChannelClosedError as error:
        return error
    finally:
        channel.leave()


async def demand(connection: Connection, doing: str, method: Method, answer: Method, **values: Any) -> Call:
    """The answer; a refusal is raised."""
    found = await attempt(connection, method, answer, **values)
    if isinstance(found, ChannelClosedError):
        raise refusal(connection, doing, found)
    return found


def refusal(connection: Connection, doing: str, error: ChannelClosedError) -> BrokerError:
    message = f"{connection.where}: {doing}: {one_line(str(error))}"
    return PermanentError(message) if error.code in {ACCESS_REFUSED, PRECONDITION_FAILED} else TransientError(message)
