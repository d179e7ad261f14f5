"""The queue that a link consumes from."""

from __future__ import annotations

from agent.amqp.connect import Connection
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED
from agent.amqp.questions import attempt, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.model import Queue
from agent.core.rules.objects import like_queue, undeclarable
from agent.errors import PermanentError


async def ensure(connection: Connection, name: str, like: Queue) -> None:
    """An existing one is used as it is; a missing one is declared with the downstream's attributes."""
    passive = {"queue": name, "passive": True}
    found = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **passive)
    if not isinstance(found, ChannelClosedError):
        return
    if found.code != NOT_FOUND:
        raise refusal(connection, f"looking for queue {name!r}", found)
    if like.unusable is not None:
        raise PermanentError(f"{connection.where}: {undeclarable(name, like)}")
    declared = {"queue": name, "durable": like.durable, "arguments": like_queue(like)}
    found = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **declared)
    if not isinstance(found, ChannelClosedError):
        return
    if found.code == PRECONDITION_FAILED:  # unless somebody was quicker, with other attributes: those count
        again = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **passive)
        if not isinstance(again, ChannelClosedError):
            return
    raise refusal(connection, f"declaring the missing queue {name!r}", found)
