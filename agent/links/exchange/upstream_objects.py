"""The objects that an exchange link keeps upstream besides its bindings: exchange, queue, internal exchange.

Why: docs/decisions/0032-few-round-trips.md, docs/decisions/0035-names-over-255-bytes.md
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.declares import COMMAND_INVALID, Opener, closing_code, declare, declare_any, is_harmless
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED
from agent.amqp.rpc import attempt, demand, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.core.fields import Table
from agent.core.model import Exchange, LinkSettings
from agent.core.rules.declarations import FALLBACK_TYPE, NATIVE_TYPE, PURPOSE, queue_arguments
from agent.errors import BrokerError, PermanentError, TransientError
from agent.links.errors import InDoubtError, NotEmptyError

LEADER_PATIENCE: Final = 10.0
BUILT_IN_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})
_DIFFERING = re.compile(r"inequivalent arg '([^']*)'")


async def exists(connection: Connection, name: str, *, spare: Opener) -> bool:
    found = await declare_any(connection, "exchange", name, spare=spare, type="fanout", passive=True)
    if not isinstance(found, ChannelClosedError):
        return True
    if found.code != NOT_FOUND:
        raise refusal(connection, f"looking for exchange {name!r}", found)
    return False


async def ensure_exchange(connection: Connection, name: str, like: Exchange, *, spare: Opener) -> bool:
    """Declare the upstream exchange with the downstream's type and attributes if it is missing; return True if it was.

    An old broker closes the whole connection over a type that it doesn't know: such a type is tried on a `spare`
    connection.
    """
    if await exists(connection, name, spare=spare):
        return False
    attributes = {
        "type": like.type,
        "durable": like.durable,
        "auto_delete": like.auto_delete,
        "internal": like.internal,
        "arguments": like.arguments,
    }
    is_known = like.type in BUILT_IN_TYPES or connection.server.outlives_unknown_types
    if is_known or not is_harmless(connection, "exchange", name, passive=False):
        found = await declare_any(connection, "exchange", name, spare=spare, **attributes)
    else:
        async with await spare() as spared:
            found = await _declare_of_type(spared, name, attributes)
    if not isinstance(found, ChannelClosedError):
        return True
    if found.code == PRECONDITION_FAILED and await exists(connection, name, spare=spare):
        return False  # it was declared by another meanwhile, with other attributes: those count
    raise refusal(connection, f"declaring the missing exchange {name!r}", found)


async def _declare_of_type(connection: Connection, name: str, attributes: dict[str, Any]) -> Call | ChannelClosedError:
    try:
        return await declare(connection, "exchange", name, **attributes)
    except BrokerError as error:
        if closing_code(error) != COMMAND_INVALID:
            raise
        raise PermanentError(
            f"{connection.where}: exchange {name!r} is missing, and its type {attributes['type']!r} "
            "is not known there: enable the plugin of that type, or declare the exchange there"
        ) from error


async def ensure_queue(connection: Connection, name: str, settings: LinkSettings, *, spare: Opener) -> tuple[int, str]:
    """Declare the queue; return its number of consumers, and a note if it exists with other arguments."""
    found = await declare_any(connection, "queue", name, spare=spare, durable=True, arguments=queue_arguments(settings))
    if not isinstance(found, ChannelClosedError):
        return found["consumers"], ""
    if found.code != PRECONDITION_FAILED:
        raise refusal(connection, f"declaring queue {name!r}", found)
    standing = await declare(connection, "queue", name, passive=True)
    if isinstance(standing, ChannelClosedError):
        raise refusal(connection, f"looking for queue {name!r}", standing)
    differing = _DIFFERING.search(str(found))
    what = f"another {differing[1]}" if differing else "other arguments"
    return standing["consumers"], f"the upstream queue exists with {what} than defined; it is used as it is"


async def declare_internal(connection: Connection, name: str, *, native: Table | None) -> bool:
    """Declare the internal exchange; return True if it is of the plugin's own type, which is tried if `native`
    arguments are given.

    An old broker closes the whole connection over a type that it doesn't know, so the connection may be lost.
    """
    common = {"durable": True, "internal": True, "auto_delete": True}
    if native is not None:
        found = await declare(connection, "exchange", name, type=NATIVE_TYPE, arguments=native, **common)
        if not isinstance(found, ChannelClosedError):
            return True
        if found.code not in {PRECONDITION_FAILED, COMMAND_INVALID}:
            raise refusal(connection, f"declaring exchange {name!r}", found)
    found = await declare(connection, "exchange", name, type=FALLBACK_TYPE, arguments=(PURPOSE,), **common)
    if isinstance(found, ChannelClosedError):
        raise refusal(connection, f"declaring exchange {name!r}", found)
    return False


async def delete_exchange(connection: Connection, name: str) -> None:
    doing = f"deleting exchange {name!r}"
    await demand(connection, doing, methods.EXCHANGE_DELETE, methods.EXCHANGE_DELETE_OK, exchange=name)


async def delete_queue(connection: Connection, name: str, *, if_empty: bool = False, is_quorum: bool = False) -> None:
    """Delete a queue only if it has no consumer, with `if_empty` only if it has no messages; raise TransientError or
    NotEmptyError otherwise. A consumer that just left may still be counted.

    Brokers accept no conditions for quorum queues, and close the connection over them: the queue is looked at first.
    That may cost the connection, too, so it has to be one that is not shared.
    """
    conditions = {"if_unused": True, "if_empty": if_empty}
    if is_quorum:
        messages, consumers = await _look_closely(connection, name)
        if (kept := _kept(connection, name, consumers=consumers, messages=messages if if_empty else 0)) is not None:
            raise kept
        if consumers is not None:
            conditions = {}
    found = await attempt(connection, methods.QUEUE_DELETE, methods.QUEUE_DELETE_OK, queue=name, **conditions)
    if not isinstance(found, ChannelClosedError):
        return
    if found.code == PRECONDITION_FAILED:
        is_used, has_messages = str(found).endswith("in use"), if_empty and str(found).endswith("not empty")
        if (kept := _kept(connection, name, consumers=is_used, messages=has_messages)) is not None:
            raise kept from found
    raise refusal(connection, f"deleting queue {name!r}", found)


def _kept(connection: Connection, name: str, *, consumers: int | None, messages: int) -> BrokerError | None:
    """The error if the queue has to be kept; None if it may be deleted."""
    if consumers:
        return TransientError(f"{connection.where}: queue {name!r} is kept: it has another consumer")
    if messages:
        return NotEmptyError(f"{connection.where}: queue {name!r} is kept: messages wait in it")
    return None


async def _look_closely(connection: Connection, queue: str) -> tuple[int, int | None]:
    """The messages and the consumers of a quorum queue; None for these if its leader didn't count them, or it may be no
    such queue.

    Without a leader that answers within 250 ms, brokers from 3.10 to 4.3 declare such a queue as empty and unused,
    however many messages it holds, and delete it by force. So a message is fetched, too, which only the leader can
    answer. Until it goes back with the channel, this counts as one more consumer, as in no other queue.
    """
    channel = connection.wire.begin_channel()
    try:
        async with asyncio.timeout(LEADER_PATIENCE):
            before, got, counted = await asyncio.gather(
                channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True),
                channel.ask(methods.BASIC_GET, methods.BASIC_GET_OK, queue=queue),
                channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True),
            )
    except ChannelClosedError as error:
        if error.code == NOT_FOUND:
            return 0, 0
        if error.code == RESOURCE_LOCKED:  # by a consumer that is the only active one
            return 0, 1
        raise refusal(connection, f"looking into queue {queue!r}", error) from error
    except (TimeoutError, TransientError) as error:  # brokers close the connection over a queue without a leader
        raise InDoubtError(
            f"{connection.where}: queue {queue!r} is left: its leader doesn't answer, so what waits in it isn't known"
        ) from error
    finally:
        channel.leave()
    if got.method is not methods.BASIC_GET_OK:
        return counted["messages"], counted["consumers"]
    is_counted = counted["consumers"] == before["consumers"] + 1
    return counted["messages"] + 1, before["consumers"] if is_counted else None


async def bind_queue(connection: Connection, queue: str, exchange: str) -> None:
    doing = f"binding queue {queue!r}"
    await demand(connection, doing, methods.QUEUE_BIND, methods.QUEUE_BIND_OK, queue=queue, exchange=exchange)
