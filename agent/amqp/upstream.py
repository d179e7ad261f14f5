"""What an exchange link keeps upstream: its queue, its internal exchange, its bindings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.desk import Desk
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, one_line
from agent.amqp.pool import Shared
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, MethodTooLargeError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call, Method
from agent.core.bindings import Group
from agent.core.fields import Table
from agent.core.model import Exchange, LinkSettings
from agent.core.objects import FALLBACK_TYPE, NATIVE_TYPE, PURPOSE, queue_arguments
from agent.errors import BrokerError, PermanentError, TransientError

COMMAND_INVALID: Final = 503
RESOURCE_LOCKED: Final = 405
LEADER_PATIENCE: Final = 10.0
BUILT_IN_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})
# Enough to fill a long path, few enough that an error is found soon and the broker's other work goes on.
IN_FLIGHT: Final = 2_000
LANES: Final = 32
PER_LANE: Final = 25
_DIFFERING = re.compile(r"inequivalent arg '([^']*)'")

Opener = Callable[[], Awaitable[Connection]]


async def attempt(connection: Connection, method: Method, answer: Method, **values: Any) -> Call | ChannelClosedError:
    """One question on a channel of its own, which a no closes."""
    channel = connection.wire.begin_channel()
    try:
        return await channel.ask(method, answer, **values)
    except ChannelClosedError as error:
        return error
    finally:
        channel.leave()


async def demand(connection: Connection, doing: str, method: Method, answer: Method, **values: Any) -> Call:
    """As `attempt`, but a no ends the link."""
    found = await attempt(connection, method, answer, **values)
    if isinstance(found, ChannelClosedError):
        raise refusal(connection, doing, found)
    return found


def refusal(connection: Connection, doing: str, error: ChannelClosedError) -> BrokerError:
    message = f"{connection.where}: {doing}: {one_line(str(error))}"
    return PermanentError(message) if error.code in {ACCESS_REFUSED, PRECONDITION_FAILED} else TransientError(message)


async def stands(connection: Connection, name: str) -> bool:
    values = {"exchange": name, "type": "fanout", "passive": True}
    found = await attempt(connection, methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, **values)
    if not isinstance(found, ChannelClosedError):
        return True
    if found.code != NOT_FOUND:
        raise refusal(connection, f"looking for exchange {name!r}", found)
    return False


async def ensure_exchange(connection: Connection, name: str, like: Exchange, *, spare: Opener) -> bool:
    """The upstream exchange, with the downstream's type and attributes where it is missing; whether it was.

    An old broker closes the whole connection over a type that it doesn't know: such a one is tried on a `spare` one.
    """
    if await stands(connection, name):
        return False
    declared = {
        "exchange": name,
        "type": like.type,
        "durable": like.durable,
        "auto_delete": like.auto_delete,
        "internal": like.internal,
        "arguments": like.arguments,
    }
    if like.type in BUILT_IN_TYPES or connection.server.outlives_unknown_types:
        found = await attempt(connection, methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, **declared)
    else:
        async with await spare() as spared:
            found = await _declare_of_type(spared, declared)
    if not isinstance(found, ChannelClosedError):
        return True
    if found.code == PRECONDITION_FAILED and await stands(connection, name):
        return False  # somebody was quicker, with other attributes: those count
    raise refusal(connection, f"declaring the missing exchange {name!r}", found)


async def _declare_of_type(connection: Connection, declared: dict[str, Any]) -> Call | ChannelClosedError:
    try:
        return await attempt(connection, methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, **declared)
    except BrokerError as error:
        if not isinstance(error.__cause__, ConnectionClosedError) or error.__cause__.code != COMMAND_INVALID:
            raise
        raise PermanentError(
            f"{connection.where}: exchange {declared['exchange']!r} is missing, and its type {declared['type']!r} "
            "is not known there: enable the plugin of that type, or declare the exchange there"
        ) from error


async def ensure_queue(connection: Connection, name: str, settings: LinkSettings) -> tuple[int, str]:
    """How many consumers the queue has, and what is to be said of one that stands with other arguments."""
    declared = {"queue": name, "durable": True, "arguments": queue_arguments(settings)}
    found = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **declared)
    if not isinstance(found, ChannelClosedError):
        return found["consumers"], ""
    if found.code != PRECONDITION_FAILED:
        raise refusal(connection, f"declaring queue {name!r}", found)
    standing = await demand(
        connection,
        f"looking for queue {name!r}",
        methods.QUEUE_DECLARE,
        methods.QUEUE_DECLARE_OK,
        queue=name,
        passive=True,
    )
    differing = _DIFFERING.search(str(found))
    what = f"another {differing[1]}" if differing else "other arguments"
    return standing["consumers"], f"the upstream queue stands with {what} than defined; it is used as it stands"


async def declare_internal(connection: Connection, name: str, *, native: Table | None) -> bool:
    """The internal exchange; answers whether it is of the plugin's own type, tried where `native` arguments are given.

    An old broker closes the whole connection over a type that it doesn't know, so the connection may be lost.
    """
    common = {"exchange": name, "durable": True, "internal": True, "auto_delete": True}
    if native is not None:
        found = await attempt(
            connection,
            methods.EXCHANGE_DECLARE,
            methods.EXCHANGE_DECLARE_OK,
            type=NATIVE_TYPE,
            arguments=native,
            **common,
        )
        if not isinstance(found, ChannelClosedError):
            return True
        if found.code not in {PRECONDITION_FAILED, COMMAND_INVALID}:
            raise refusal(connection, f"declaring exchange {name!r}", found)
    await demand(
        connection,
        f"declaring exchange {name!r}",
        methods.EXCHANGE_DECLARE,
        methods.EXCHANGE_DECLARE_OK,
        type=FALLBACK_TYPE,
        arguments=(PURPOSE,),
        **common,
    )
    return False


async def delete_exchange(connection: Connection, name: str) -> None:
    doing = f"deleting exchange {name!r}"
    await demand(connection, doing, methods.EXCHANGE_DELETE, methods.EXCHANGE_DELETE_OK, exchange=name)


class KeptError(PermanentError):
    """What was to be deleted is kept for now, and may be deleted later."""


class NotEmptyError(KeptError):
    """A queue that was to be deleted only if it is empty has messages."""


class InDoubtError(TransientError):
    """What waits in a queue can't be known now."""


async def delete_queue(connection: Connection, name: str, *, if_empty: bool = False, is_quorum: bool = False) -> None:
    """Only where nobody consumes from it; TransientError tells that somebody does, as one that just left may still.

    Of quorum queues a broker takes no conditions, and closes the connection over them: the queue is looked at first.
    That may cost the connection, too, so it has to be one that nobody else uses.
    """
    conditions = {} if is_quorum else {"if_unused": True, "if_empty": if_empty}
    if is_quorum:
        messages, consumers = await _look_closely(connection, name)
        if (kept := _kept(connection, name, consumers=consumers, messages=messages if if_empty else 0)) is not None:
            raise kept
    found = await attempt(connection, methods.QUEUE_DELETE, methods.QUEUE_DELETE_OK, queue=name, **conditions)
    if not isinstance(found, ChannelClosedError):
        return
    if found.code == PRECONDITION_FAILED:
        is_used, has_messages = "in use" in str(found), if_empty and "not empty" in str(found)
        if (kept := _kept(connection, name, consumers=is_used, messages=has_messages)) is not None:
            raise kept from found
    raise refusal(connection, f"deleting queue {name!r}", found)


def _kept(connection: Connection, name: str, *, consumers: int, messages: int) -> BrokerError | None:
    """Why the queue isn't deleted."""
    if consumers:
        return TransientError(f"{connection.where}: queue {name!r} is left: somebody else consumes from it")
    if messages:
        return NotEmptyError(f"{connection.where}: queue {name!r} is left: messages wait in it")
    return None


async def count_consumers(connection: Connection, queue: str) -> int:
    """How many consume from the queue; nobody does where it doesn't stand."""
    _, consumers = await _count(connection, queue)
    return consumers


async def _count(connection: Connection, queue: str) -> tuple[int, int]:
    """Messages that are ready, and consumers; none of a queue that doesn't exist."""
    declared = {"queue": queue, "passive": True}
    found = await attempt(connection, methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, **declared)
    if not isinstance(found, ChannelClosedError):
        return found["messages"], found["consumers"]
    if found.code != NOT_FOUND:
        raise refusal(connection, f"looking for queue {queue!r}", found)
    return 0, 0


async def _look_closely(connection: Connection, queue: str) -> tuple[int, int]:
    """As `_count`, of a quorum queue: without a leader that answers within 250 ms, brokers from 3.10 to 4.3 declare one
    as empty and unused, however many messages it holds, and delete it by force. So a message is asked for, too, which
    only the leader can answer; it goes back with the channel."""
    try:
        async with asyncio.timeout(LEADER_PATIENCE):
            got = await attempt(connection, methods.BASIC_GET, methods.BASIC_GET_OK, queue=queue)
        messages, consumers = await _count(connection, queue)
    except (TimeoutError, TransientError) as error:  # brokers close the connection over a queue without a leader
        raise InDoubtError(
            f"{connection.where}: queue {queue!r} is left: its leader doesn't answer, so what waits in it isn't known"
        ) from error
    if not isinstance(got, ChannelClosedError):
        return max(messages, int(got.method is methods.BASIC_GET_OK)), consumers
    if got.code == NOT_FOUND:
        return messages, consumers
    if got.code == RESOURCE_LOCKED:  # by a consumer that is the only active one
        return messages, max(consumers, 1)
    raise refusal(connection, f"looking into queue {queue!r}", got)


async def count_messages(control: Shared, queue: str) -> int:
    """How many messages are ready in the queue; none where it doesn't exist. Costs no channel of its own."""
    async with control.desk.counter() as channel:
        try:
            found = await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True)
        except ChannelClosedError as error:
            if error.code == NOT_FOUND:
                return 0
            raise refusal(control.connection, f"looking for queue {queue!r}", error) from error
    messages: int = found["messages"]
    return messages


async def bind_queue(connection: Connection, queue: str, exchange: str) -> None:
    doing = f"binding queue {queue!r}"
    await demand(connection, doing, methods.QUEUE_BIND, methods.QUEUE_BIND_OK, queue=queue, exchange=exchange)


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A group whose binding fits into no frame; why in an operator's words."""

    group: Group
    why: str


class Binder:
    """Binds and unbinds groups, many in flight.

    A broker works through one channel's questions one by one, so very many are spread over several.
    """

    def __init__(self, connection: Connection, desk: Desk, *, source: str, destination: str) -> None:
        self._connection = connection
        self._desk = desk
        self._source = source
        self._destination = destination

    async def bind(self, groups: Collection[Group]) -> list[TooLarge]:
        """Answers those that were left out: sent all the same, one of them would end the connection of many links."""
        return await self._each(methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, groups)

    async def unbind(self, groups: Collection[Group]) -> None:
        await self._each(methods.EXCHANGE_UNBIND, methods.EXCHANGE_UNBIND_OK, groups)

    async def bind_again(self, groups: Collection[Group]) -> None:
        """What stands already, most likely; nobody waits for it."""
        async with self._desk.counter() as channel:
            await self._ask_all([channel], methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, groups)

    async def depth(self, queue: str) -> int:
        """How many messages are ready in a queue."""
        async with self._desk.counter() as channel:
            try:
                answer = await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue=queue, passive=True)
            except ChannelClosedError as error:
                raise refusal(self._connection, f"looking for queue {queue!r}", error) from error
        messages: int = answer["messages"]
        return messages

    async def _each(self, method: Method, answer: Method, groups: Collection[Group]) -> list[TooLarge]:
        if not groups:
            return []
        lanes = self._lanes(len(groups))
        try:
            return await self._ask_all(lanes, method, answer, groups)
        finally:
            for lane in lanes:
                lane.leave()

    def _lanes(self, count: int) -> list[Channel]:
        """One for few groups, and few where other links need what channels there are."""
        wire = self._connection.wire
        wanted = max(1, min(count // PER_LANE, LANES, wire.free_channels // LANES))
        return [wire.begin_channel() for _ in range(wanted)]

    async def _ask_all(
        self, lanes: list[Channel], method: Method, answer: Method, groups: Collection[Group]
    ) -> list[TooLarge]:
        asked: list[tuple[Group, asyncio.Future[Call]]] = []
        too_large: list[TooLarge] = []
        for lane, group in zip(cycle(lanes), groups, strict=False):
            if not lane.is_usable:
                await self._settle(asked, method)  # one of these tells why
            elif len(asked) >= IN_FLIGHT:
                await self._settle(asked[: IN_FLIGHT // 2], method)
                del asked[: IN_FLIGHT // 2]
            try:
                asked.append((group, self._ask(lane, method, answer, group)))
            except MethodTooLargeError as error:
                too_large.append(TooLarge(group, str(error)))
        await self._settle(asked, method)
        return too_large

    def _ask(self, lane: Channel, method: Method, answer: Method, group: Group) -> asyncio.Future[Call]:
        return lane.ask_soon(
            method,
            answer,
            source=self._source,
            destination=self._destination,
            routing_key=group.routing_key,
            arguments=group.arguments,
        )

    async def _settle(self, asked: list[tuple[Group, asyncio.Future[Call]]], method: Method) -> None:
        """Looks at the answers in order, so the first error of a lane is the culprit's."""
        for group, future in asked:
            try:
                await future
            except ChannelClosedError as error:
                doing = f"{method.name} of {self._source!r} with key {group.routing_key!r}"
                raise refusal(self._connection, doing, error) from error
