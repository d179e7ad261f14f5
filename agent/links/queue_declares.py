"""Declarations of queues whose names may be too long for a broker to say in its refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.questions import attempt
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call
from agent.core.rules import names
from agent.errors import BrokerError

INTERNAL_ERROR: Final = 541
Opener = Callable[[], Awaitable[Connection]]


async def ask(
    connection: Connection, spare: Opener, values: dict[str, Any], *, unsaid: int
) -> Call | ChannelClosedError:
    """The answer or the refusal; `unsaid` is the code of one that the broker can't send."""
    is_harmless = names.can_be_asked_for(values["queue"], connection.vhost, kind="queue") and (
        "passive" in values or names.can_be_declared(values["queue"], connection.vhost)
    )
    if is_harmless:
        return await declare(connection, values)
    async with await spare() as spared:
        try:
            return await declare(spared, values)
        except BrokerError as error:
            if not is_internal(error):
                raise
            return ChannelClosedError(unsaid, "refused, and with names as long as these the broker can't send why")


async def declare(connection: Connection, values: dict[str, Any]) -> Call | ChannelClosedError:
    return await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **values)


def is_internal(error: BrokerError) -> bool:
    return isinstance(error.__cause__, ConnectionClosedError) and error.__cause__.code == INTERNAL_ERROR
