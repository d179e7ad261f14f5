"""Single questions, each on a channel of its own, and a refusal as an operator's error."""

from __future__ import annotations

from typing import Any

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, one_line
from agent.amqp.wire import methods
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


async def count_consumers(connection: Connection, queue: str) -> int:
    """How many consume from the queue; nobody where it doesn't exist."""
    _, consumers = await count_both(connection, queue)
    return consumers


async def count_both(connection: Connection, queue: str) -> tuple[int, int]:
    """Messages that are ready, and consumers; none of a queue that doesn't exist."""
    declared = {"queue": queue, "passive": True}
    found = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **declared)
    if not isinstance(found, ChannelClosedError):
        return found["messages"], found["consumers"]
    if found.code != NOT_FOUND:
        raise refusal(connection, f"looking for queue {queue!r}", found)
    return 0, 0


async def count_messages(control: Shared, queue: str) -> int:
    """How many messages are ready in the queue; none where it doesn't exist. Costs no channel of its own."""
    messages, _ = await look_into(control, queue)
    return messages


async def look_into(control: Shared, queue: str) -> tuple[int, int]:
    """As `count_both`, without a channel of its own."""
    async with control.channels.borrow() as channel:
        try:
            found = await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True)
        except ChannelClosedError as error:
            if error.code == NOT_FOUND:
                return 0, 0
            raise refusal(control.connection, f"looking for queue {queue!r}", error) from error
    return found["messages"], found["consumers"]
