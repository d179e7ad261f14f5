"""The queue that a link consumes from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED
from agent.amqp.questions import attempt, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.core.model import Queue
from agent.core.rules import names
from agent.core.rules.objects import like_queue, undeclarable
from agent.errors import BrokerError, PermanentError

INTERNAL_ERROR: Final = 541
Opener = Callable[[], Awaitable[Connection]]


async def ensure(connection: Connection, name: str, like: Queue, *, spare: Opener) -> None:
    """An existing one is used as it is; a missing one is declared with the downstream's attributes.

    Some brokers close the connection over a refusal with a long name: those are asked on a `spare` one.
    """
    passive = {"queue": name, "passive": True}
    found = await _ask(connection, spare, passive, unsaid=NOT_FOUND)
    if found is None:
        return
    if found.code != NOT_FOUND:
        raise refusal(connection, f"looking for queue {name!r}", found)
    if like.unusable is not None:
        raise PermanentError(f"{connection.where}: {undeclarable(name, like)}")
    declared = {"queue": name, "durable": like.durable, "arguments": like_queue(like)}
    found = await _ask(connection, spare, declared, unsaid=PRECONDITION_FAILED)
    if found is None:
        return
    # Unless somebody was quicker, with other attributes: those count.
    if found.code == PRECONDITION_FAILED and await _ask(connection, spare, passive, unsaid=NOT_FOUND) is None:
        return
    raise refusal(connection, f"declaring the missing queue {name!r}", found)


async def _ask(
    connection: Connection, spare: Opener, values: dict[str, Any], *, unsaid: int
) -> ChannelClosedError | None:
    """The refusal, if it is one; `unsaid` is the code of one that the broker can't send."""
    is_harmless = names.can_be_asked_for(values["queue"], connection.vhost, kind="queue") and (
        "passive" in values or names.can_be_declared(values["queue"], connection.vhost)
    )
    if is_harmless:
        return _refused(await _declare(connection, values))
    async with await spare() as spared:
        try:
            return _refused(await _declare(spared, values))
        except BrokerError as error:
            if not isinstance(error.__cause__, ConnectionClosedError) or error.__cause__.code != INTERNAL_ERROR:
                raise
            return ChannelClosedError(unsaid, "refused, and with names as long as these the broker can't send why")


async def _declare(connection: Connection, values: dict[str, Any]) -> object:
    return await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **values)


def _refused(found: object) -> ChannelClosedError | None:
    return found if isinstance(found, ChannelClosedError) else None
