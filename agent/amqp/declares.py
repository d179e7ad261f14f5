"""Declares of queues and exchanges, and passive ones, which change nothing and work without statistics.

A refusal names what it is about. Where that doesn't fit into a reply, brokers from 4.0 on close the connection with 541
instead of refusing: such a name is declared on a spare connection, where that costs nobody anything.

Why: docs/decisions/0035-names-over-255-bytes.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from agent.amqp.connect import Connection
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED
from agent.amqp.rpc import accepted, attempt
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.refusal_texts import is_stream, shows_replication, unlike
from agent.core import fields
from agent.core.model import QueueDestination, QueueSource
from agent.core.rules import declarations, names
from agent.errors import BrokerError, Failure, TransientError

COMMAND_INVALID: Final = 503
_INTERNAL_ERROR: Final = 541
_UNSENT = "refused, and with names as long as these the broker can't send why"
_MISSING = "missing, and with a name as long as this the broker can't say so"
_UNASKED = "its name is too long for a broker to say that it is missing"

Opener: TypeAlias = Callable[[], Awaitable[Connection]]
Kind: TypeAlias = Literal["queue", "exchange"]
_METHODS: Final = {"queue": methods.QUEUE_DECLARE, "exchange": methods.EXCHANGE_DECLARE}

_AT_ONCE = 256  # a refusal closes its channel, so each request has its own
_SPARES = 8


async def declare(connection: Connection, kind: Kind, name: str, **values: Any) -> Call | ChannelClosedError:
    """Declare a queue or an exchange; return the broker's response, or its refusal."""
    named: dict[str, Any] = {kind: name, **values}
    return await attempt(connection, _METHODS[kind], **named)


async def declare_any(
    connection: Connection, kind: Kind, name: str, *, spare: Opener | None, **values: Any
) -> Call | ChannelClosedError:
    """Like `declare`, for a name of any length. If the broker may close the connection over the name, use a `spare`
    connection; without one, ask nothing and return a refusal."""
    if is_harmless(connection, kind, name, passive="passive" in values):
        return await declare(connection, kind, name, **values)
    if spare is None:
        return ChannelClosedError(0, _UNASKED)
    found = await declare_on_spare(spare, kind, name, **values)
    if not isinstance(found, ConnectionClosedError):
        return found
    if "passive" in values:
        return ChannelClosedError(NOT_FOUND, _MISSING)
    return ChannelClosedError(PRECONDITION_FAILED, _UNSENT)


async def declare_on_spare(
    opener: Opener, kind: Kind, name: str, *, closing: int = _INTERNAL_ERROR, **values: Any
) -> Call | ChannelClosedError | ConnectionClosedError:
    """Like `declare`, on a separate connection, which the broker may close with this code as its refusal."""
    async with await opener() as apart:
        try:
            return await declare(apart, kind, name, **values)
        except BrokerError as error:
            if isinstance(error.__cause__, ConnectionClosedError) and error.__cause__.code == closing:
                return error.__cause__
            raise


async def look(
    connection: Connection, kind: Kind, name: str, *, spare: Opener | None, **values: Any
) -> Call | ChannelClosedError:
    """What a passive declare shows of a name of any length; a refusal only if it is missing. Raises BrokerError."""
    found = await declare_any(connection, kind, name, spare=spare, passive=True, **values)
    is_missing = isinstance(found, ChannelClosedError) and found.code == NOT_FOUND
    return found if is_missing else accepted(connection, f"looking for {kind} {name!r}", found)


async def exists(connection: Connection, kind: Kind, name: str, *, spare: Opener) -> bool:
    values = {"type": "fanout"} if kind == "exchange" else {}
    return not isinstance(await look(connection, kind, name, spare=spare, **values), ChannelClosedError)


async def ensure(
    connection: Connection,
    kind: Kind,
    name: str,
    *,
    spare: Opener,
    declaring: Callable[[], Awaitable[Call | ChannelClosedError]],
) -> bool:
    """Use what exists as it is; declare what is missing, and return True if it was. Raises BrokerError."""
    if await exists(connection, kind, name, spare=spare):
        return False
    found = await declaring()
    is_unlike = isinstance(found, ChannelClosedError) and found.code == PRECONDITION_FAILED
    if is_unlike and await exists(connection, kind, name, spare=spare):
        return False  # it was declared by another meanwhile, with other attributes: those count
    accepted(connection, f"declaring the missing {kind} {name!r}", found)
    return True


def is_harmless(connection: Connection, kind: Kind, name: str, *, passive: bool) -> bool:
    """True if the broker, should it refuse this declare, doesn't close the connection."""
    if passive:
        return names.can_be_asked_for(name, connection.vhost, kind=kind)
    return names.can_be_declared(name, connection.vhost)


class Presence(StrEnum):
    EXISTS = "exists"
    MISSING = "missing"
    LOCKED = "locked"
    REFUSED = "refused"
    FAILED = "failed"


_BY_CODE = {NOT_FOUND: Presence.MISSING, RESOURCE_LOCKED: Presence.LOCKED, ACCESS_REFUSED: Presence.REFUSED}


@dataclass(frozen=True, slots=True)
class ObjectFound:
    """A queue or an exchange as a passive declare shows it; an exchange has no messages and no consumers. `locked`:
    exclusive to another connection; `refused`: no permission. `detail` is the broker's own text."""

    presence: Presence
    messages: int = 0
    consumers: int = 0
    detail: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The results of `probe`, by name."""

    queues: Mapping[str, ObjectFound]
    exchanges: Mapping[str, ObjectFound]


async def probe(
    connection: Connection, *, queues: Iterable[str] = (), exchanges: Iterable[str] = (), spare: Opener | None = None
) -> Found:
    """Ask for all the names concurrently. A refusal is a result; raise BrokerError if a connection is lost or can't be
    opened, or the broker doesn't answer."""
    channels = asyncio.Semaphore(max(1, min(_AT_ONCE, connection.channel_max // 2)))
    connections = asyncio.Semaphore(_SPARES)

    async def ask(kind: Kind, name: str) -> tuple[str, ObjectFound]:
        if is_harmless(connection, kind, name, passive=True):
            async with channels:
                answer = await _ask_and_close(connection, kind, name)
        else:
            async with connections:
                answer = await declare_any(connection, kind, name, spare=spare, passive=True)
        if isinstance(answer, ChannelClosedError):
            presence = _BY_CODE.get(answer.code, Presence.FAILED)
            return name, ObjectFound(presence, detail=answer.what, failure=answer.failure)
        counts = answer.values
        return name, ObjectFound(Presence.EXISTS, counts.get("messages", 0), counts.get("consumers", 0))

    found_queues, found_exchanges = await asyncio.gather(
        asyncio.gather(*(ask("queue", name) for name in queues)),
        asyncio.gather(*(ask("exchange", name) for name in exchanges)),
    )
    return Found(dict(found_queues), dict(found_exchanges))


async def _ask_and_close(connection: Connection, kind: Kind, name: str) -> Call | ChannelClosedError:
    """Ask on a new channel, and return once its number is free again: the broker allows only so many."""
    named: dict[str, Any] = {kind: name}
    channel = connection.wire.begin_channel()
    try:
        call = await channel.ask(_METHODS[kind], passive=True, **named)
        await channel.close()
    except ChannelClosedError as error:
        return error
    finally:
        channel.leave()
    return call


NO_TYPE: Final = "asked by federation-agent"
"""Brokers refuse this type for every queue, so asking declares none, even if the queue is gone by now."""


async def is_replicated(connection: Connection, queue: str) -> bool | None:
    """True if the queue is a quorum queue or a stream; None if that can't be known. A queue with other arguments is
    refused because of these, the refusal over a long name lacks its end, and a user who may not configure the queue
    learns nothing of it."""
    found = await _refuse_type(connection, queue, durable=True)
    if found is None:
        return None
    if found.code == RESOURCE_LOCKED:  # exclusive, which none is that is replicated
        return False
    return shows_replication(str(found), queue, connection.vhost) if found.code == PRECONDITION_FAILED else None


async def why_not_emptied(connection: Connection, queue: str) -> str:
    """The reason why a consumer can't take what is in the queue and leave the rest; empty if nothing shows that, as in
    all cases in which `is_replicated` doesn't know."""
    for durable in (True, False):
        text = str(await _refuse_type(connection, queue, durable=durable))
        if unlike(text) == "auto_delete":
            return "is an auto-delete queue: it is deleted with its last consumer, and what stays in it"
        if is_stream(text):
            return "is a stream, of which nothing is ever taken away: copy it by a shovel with x-stream-offset"
        if unlike(text) != "durable":
            break
    return ""


async def _refuse_type(connection: Connection, queue: str, *, durable: bool) -> ChannelClosedError | None:
    """Declare the queue with a type that none has; return the refusal, None if the name is too long for one."""
    if not names.can_be_declared(queue, connection.vhost):
        return None
    asked = ((declarations.TYPE, fields.text(NO_TYPE)),)
    found = await declare(connection, "queue", queue, durable=durable, arguments=asked)
    return found if isinstance(found, ChannelClosedError) else None


class QueueFound(NamedTuple):
    """The numbers of ready messages and of consumers; `was_missing`: it has been declared just now."""

    messages: int
    consumers: int
    was_missing: bool = False


async def ensure_queue(
    connection: Connection, wanted: QueueSource | QueueDestination, *, spare: Opener | None, key: str = ""
) -> QueueFound:
    """Ensure a queue.

    One that exists is used as it is; a missing one is declared durable. Some brokers close the connection over a
    refusal with a long name: those are asked on a `spare` one.

    `key` is the configuration's key that says that it is there already: then TransientError is raised if it is missing.
    """
    queue = wanted.queue
    found = await look(connection, "queue", queue, spare=spare)
    if not isinstance(found, ChannelClosedError):
        return QueueFound(found["messages"], found["consumers"])
    if wanted.is_predeclared:
        raise TransientError(
            f"queue {queue!r} is missing in vhost {connection.vhost!r}, and {key} says that it exists: declare it, or "
            f"leave out {key}; the shovel waits for it",
            where=connection.where,
        ) from found
    found = await declare_any(connection, "queue", queue, spare=spare, durable=True, arguments=wanted.arguments)
    declared = accepted(connection, f"declaring queue {queue!r}", found)
    return QueueFound(declared["messages"], declared["consumers"], was_missing=True)
