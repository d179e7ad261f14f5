"""The queue that a link consumes from."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from agent.amqp.connect import Connection
from agent.amqp.declares import INTERNAL_ERROR, Opener, closing_code, declare, declare_any
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED
from agent.amqp.rpc import refusal
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.core.model import Queue
from agent.core.rules.declarations import like_queue, undeclarable
from agent.errors import BrokerError, PermanentError


class UpstreamQueues:
    """Declares the queues that links consume from, and remembers, for all links, which brokers take transient queues.

    Some close the connection over one. So on each connection the first one is declared on a spare connection.
    """

    def __init__(self) -> None:
        self._takers: WeakSet[Connection] = WeakSet()
        self._trials: WeakKeyDictionary[Connection, asyncio.Lock] = WeakKeyDictionary()

    async def ensure(self, connection: Connection, name: str, like: Queue, *, spare: Opener) -> None:
        """Use an existing queue as it is; declare a missing one with the downstream's attributes.

        Some brokers close the connection over a refusal with a long name: those are asked on a `spare` one.
        """
        found = await declare_any(connection, "queue", name, spare=spare, passive=True)
        if not isinstance(found, ChannelClosedError):
            return
        if found.code != NOT_FOUND:
            raise refusal(connection, f"looking for queue {name!r}", found)
        if like.unusable is not None:
            raise PermanentError(f"{connection.where}: {undeclarable(name, like)}")
        found = await self._declared(connection, spare, name, _attributes(like))
        if not isinstance(found, ChannelClosedError):
            return
        # Unless somebody was quicker, with other attributes: those count.
        if found.code == PRECONDITION_FAILED:
            standing = await declare_any(connection, "queue", name, spare=spare, passive=True)
            if not isinstance(standing, ChannelClosedError):
                return
        raise refusal(connection, f"declaring the missing queue {name!r}", found)

    async def _declared(
        self, connection: Connection, spare: Opener, name: str, values: dict[str, Any]
    ) -> Call | ChannelClosedError:
        is_doubtful = not values["durable"] and connection.server.may_refuse_transient_queues
        if is_doubtful and connection not in self._takers:
            return await self._try_transient(connection, spare, name, values)
        return await declare_any(connection, "queue", name, spare=spare, **values)

    async def _try_transient(
        self, connection: Connection, spare: Opener, name: str, values: dict[str, Any]
    ) -> Call | ChannelClosedError:
        async with self._trials.setdefault(connection, asyncio.Lock()):
            if connection in self._takers:
                return await declare_any(connection, "queue", name, spare=spare, **values)
            async with await spare() as spared:
                try:
                    found = await declare(spared, "queue", name, **values)
                except BrokerError as error:
                    if closing_code(error) != INTERNAL_ERROR:
                        raise
                    raise PermanentError(
                        f"{connection.where}: queue {name!r} is missing, and the broker refuses to declare "
                        f"it as a transient queue, which it is downstream: declare it upstream as durable ({error})"
                    ) from error
            if not isinstance(found, ChannelClosedError):
                self._takers.add(connection)
            return found


def _attributes(like: Queue) -> dict[str, Any]:
    return {"durable": like.durable, "auto_delete": like.auto_delete, "arguments": like_queue(like)}
