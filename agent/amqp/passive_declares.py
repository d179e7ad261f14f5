"""Looks up what exists on a broker with passive declares: they change nothing and work without statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.amqp.connect import Connection
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, one_line
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call, Method
from agent.core.rules import names
from agent.errors import BrokerError, Failure

INTERNAL_ERROR = 541
Opener = Callable[[], Awaitable[Connection]]

# A refusal closes its channel, so each request has its own channel; this many at the same time.
_AT_ONCE = 256
_SPARES = 8


class Presence(StrEnum):
    EXISTS = "exists"
    MISSING = "missing"
    LOCKED = "locked"
    REFUSED = "refused"
    FAILED = "failed"


_BY_CODE = {NOT_FOUND: Presence.MISSING, RESOURCE_LOCKED: Presence.LOCKED, ACCESS_REFUSED: Presence.REFUSED}


@dataclass(frozen=True, slots=True)
class QueueFound:
    """`locked`: exclusive to another connection; `refused`: no permission. `detail` is the broker's own text."""

    presence: Presence
    messages: int = 0
    consumers: int = 0
    detail: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ExchangeFound:
    presence: Presence
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The objects found, by name."""

    queues: Mapping[str, QueueFound]
    exchanges: Mapping[str, ExchangeFound]


async def probe(
    connection: Connection, *, queues: Iterable[str] = (), exchanges: Iterable[str] = (), spare: Opener | None = None
) -> Found:
    """Asks for all the names side by side; raises only where the connection is lost.

    A name over which a broker may close the connection is asked for on a `spare` one, or not at all.
    """
    channels = asyncio.Semaphore(max(1, min(_AT_ONCE, connection.channel_max // 2)))
    connections = asyncio.Semaphore(_SPARES)

    def gate(kind: str, name: str) -> asyncio.Semaphore:
        return channels if names.can_be_asked_for(name, connection.vhost, kind=kind) else connections

    async def ask_for_queue(name: str) -> tuple[str, QueueFound]:
        async with gate("queue", name):
            answer = await _ask(
                connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, kind="queue", name=name, spare=spare
            )
        if isinstance(answer, ChannelClosedError):
            presence = _BY_CODE.get(answer.code, Presence.FAILED)
            return name, QueueFound(presence, detail=one_line(str(answer)), failure=answer.failure)
        return name, QueueFound(Presence.EXISTS, answer["messages"], answer["consumers"])

    async def ask_for_exchange(name: str) -> tuple[str, ExchangeFound]:
        async with gate("exchange", name):
            answer = await _ask(
                connection,
                methods.EXCHANGE_DECLARE,
                methods.EXCHANGE_DECLARE_OK,
                kind="exchange",
                name=name,
                spare=spare,
            )
        if isinstance(answer, ChannelClosedError):
            return name, ExchangeFound(_BY_CODE.get(answer.code, Presence.FAILED), one_line(str(answer)))
        return name, ExchangeFound(Presence.EXISTS)

    found_queues, found_exchanges = await asyncio.gather(
        asyncio.gather(*(ask_for_queue(name) for name in queues)),
        asyncio.gather(*(ask_for_exchange(name) for name in exchanges)),
    )
    return Found(dict(found_queues), dict(found_exchanges))


async def _ask(
    connection: Connection, method: Method, answer: Method, *, kind: str, name: str, spare: Opener | None
) -> Call | ChannelClosedError:
    if names.can_be_asked_for(name, connection.vhost, kind=kind):
        return await _declare(connection, method, answer, {kind: name})
    if spare is None:
        return ChannelClosedError(0, "its name is too long for a broker to say that it is missing")
    async with await spare() as spared:
        try:
            return await _declare(spared, method, answer, {kind: name})
        except BrokerError as error:
            if not isinstance(error.__cause__, ConnectionClosedError) or error.__cause__.code != INTERNAL_ERROR:
                raise
            return ChannelClosedError(NOT_FOUND, "missing, and with a name as long as this the broker can't say so")


async def _declare(
    connection: Connection, method: Method, answer: Method, named: Mapping[str, str]
) -> Call | ChannelClosedError:
    channel = connection.wire.begin_channel()
    try:
        call = await channel.ask(method, answer, passive=True, **named)
    except ChannelClosedError as error:
        return error
    await channel.close()
    return call
