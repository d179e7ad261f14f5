"""Looks up what exists on a broker with passive declares: they change nothing and work without statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.amqp.connect import Connection
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, one_line
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call, Method
from agent.core.rules import names

# A refusal closes its channel, so each request has its own channel; this many at the same time.
_AT_ONCE = 256


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


@dataclass(frozen=True, slots=True)
class ExchangeFound:
    presence: Presence
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The objects found, by name."""

    queues: Mapping[str, QueueFound]
    exchanges: Mapping[str, ExchangeFound]


async def probe(connection: Connection, *, queues: Iterable[str] = (), exchanges: Iterable[str] = ()) -> Found:
    """Looks up all names in parallel; raises only if the connection is lost."""
    gate = asyncio.Semaphore(max(1, min(_AT_ONCE, connection.channel_max // 2)))

    async def ask_for_queue(name: str) -> tuple[str, QueueFound]:
        async with gate:
            answer = await _ask(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, kind="queue", name=name)
        if isinstance(answer, ChannelClosedError):
            return name, QueueFound(_BY_CODE.get(answer.code, Presence.FAILED), detail=one_line(str(answer)))
        return name, QueueFound(Presence.EXISTS, answer["messages"], answer["consumers"])

    async def ask_for_exchange(name: str) -> tuple[str, ExchangeFound]:
        async with gate:
            answer = await _ask(
                connection, methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, kind="exchange", name=name
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
    connection: Connection, method: Method, answer: Method, *, kind: str, name: str
) -> Call | ChannelClosedError:
    if not names.can_be_asked_for(name, connection.vhost, kind=kind):
        return ChannelClosedError(0, "its name is too long for a broker to say that it is missing")
    channel = connection.wire.begin_channel()
    try:
        call = await channel.ask(method, answer, passive=True, **{kind: name})
    except ChannelClosedError as error:
        return error
    await channel.close()
    return call
