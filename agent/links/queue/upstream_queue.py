"""The queue that a link consumes from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

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


class UpstreamQueues:
    """Shared by all links: it remembers which brokers take transient queues.

    Some close the connection over one. So on each connection the first one is declared on a spare connection.
    """

    def __init__(self) -> None:
        self._takers: WeakSet[Connection] = WeakSet()
        self._trials: WeakKeyDictionary[Connection, asyncio.Lock] = WeakKeyDictionary()

    async def ensure(self, connection: Connection, name: str, like: Queue, *, spare: Opener) -> None:
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
        found = await self._declared(connection, spare, _attributes(name, like))
        if found is None:
            return
        # Unless somebody was quicker, with other attributes: those count.
        if found.code == PRECONDITION_FAILED and await _ask(connection, spare, passive, unsaid=NOT_FOUND) is None:
            return
        raise refusal(connection, f"declaring the missing queue {name!r}", found)

    async def _declared(
        self, connection: Connection, spare: Opener, values: dict[str, Any]
    ) -> ChannelClosedError | None:
        is_doubtful = not values["durable"] and connection.server.may_refuse_transient_queues
        if is_doubtful and connection not in self._takers:
            return await self._try_transient(connection, spare, values)
        return await _ask(connection, spare, values, unsaid=PRECONDITION_FAILED)

    async def _try_transient(
        self, connection: Connection, spare: Opener, values: dict[str, Any]
    ) -> ChannelClosedError | None:
        async with self._trials.setdefault(connection, asyncio.Lock()):
            if connection in self._takers:
                return await _ask(connection, spare, values, unsaid=PRECONDITION_FAILED)
            async with await spare() as spared:
                try:
                    found = _refused(await _declare(spared, values))
                except BrokerError as error:
                    if not _is_internal(error):
                        raise
                    raise PermanentError(
                        f"{connection.where}: queue {values['queue']!r} is missing, and the broker refuses to declare "
                        f"it as a transient queue, which it is downstream: declare it upstream as durable ({error})"
                    ) from error
            if found is None:
                self._takers.add(connection)
            return found


def _attributes(name: str, like: Queue) -> dict[str, Any]:
    return {"queue": name, "durable": like.durable, "auto_delete": like.auto_delete, "arguments": like_queue(like)}


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
            if not _is_internal(error):
                raise
            return ChannelClosedError(unsaid, "refused, and with names as long as these the broker can't send why")


async def _declare(connection: Connection, values: dict[str, Any]) -> object:
    return await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **values)


def _refused(found: object) -> ChannelClosedError | None:
    return found if isinstance(found, ChannelClosedError) else None


def _is_internal(error: BrokerError) -> bool:
    return isinstance(error.__cause__, ConnectionClosedError) and error.__cause__.code == INTERNAL_ERROR
