"""Single requests, each on its own channel; refusals become errors for the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.amqp.wire.methods import Call, Method
from agent.errors import BrokerError, PermanentError, TransientError


async def attempt(connection: Connection, method: Method, **values: Any) -> Call | ChannelClosedError:
    """Make one request on its own channel, which a refusal closes; return the response or the refusal."""
    channel = connection.wire.begin_channel()
    try:
        return await channel.ask(method, **values)
    except ChannelClosedError as error:
        return error
    finally:
        channel.leave()


async def demand(connection: Connection, doing: str, method: Method, **values: Any) -> Call:
    """Make one request and return the response; raise BrokerError if it is refused."""
    return accepted(connection, doing, await attempt(connection, method, **values))


def accepted(connection: Connection, doing: str, found: Call | ChannelClosedError) -> Call:
    """The response; raises BrokerError if it is a refusal."""
    if isinstance(found, ChannelClosedError):
        raise refusal(connection, doing, found)
    return found


@contextmanager
def refused_while(connection: Connection, doing: str) -> Iterator[None]:
    """Raise BrokerError in place of a refusal, which is its cause."""
    try:
        yield
    except ChannelClosedError as error:
        raise refusal(connection, doing, error) from error


def refusal(connection: Connection, doing: str, error: ChannelClosedError) -> BrokerError:
    kind = PermanentError if error.code in {ACCESS_REFUSED, PRECONDITION_FAILED} else TransientError
    return kind(error.what, where=connection.where, doing=doing, cause=error)


def look_at_queue(channel: Channel, queue: str) -> asyncio.Future[Call]:
    """Ask for the numbers of its `messages` that are ready and of its `consumers`; changes nothing, and works without
    statistics."""
    return channel.ask(methods.QUEUE_DECLARE, queue=queue, passive=True)


async def count_consumers(connection: Connection, queue: str) -> int:
    """The number of consumers of the queue; 0 if it doesn't exist."""
    found = await attempt(connection, methods.QUEUE_DECLARE, queue=queue, passive=True)
    if isinstance(found, ChannelClosedError) and found.code == NOT_FOUND:
        return 0
    return int(accepted(connection, f"looking for queue {queue!r}", found)["consumers"])


async def count_messages(control: Shared, queue: str) -> int:
    """The number of ready messages in the queue; 0 if it doesn't exist. Needs no separate channel."""
    messages, _ = await look_into(control, queue)
    return messages


async def look_into(control: Shared, queue: str) -> tuple[int, int]:
    """The numbers of ready messages and consumers; 0 if it doesn't exist. Needs no separate channel."""
    async with control.channels.borrow() as channel:
        try:
            found = await look_at_queue(channel, queue)
        except ChannelClosedError as error:
            if error.code == NOT_FOUND:
                return 0, 0
            raise refusal(control.connection, f"looking for queue {queue!r}", error) from error
    return found["messages"], found["consumers"]
