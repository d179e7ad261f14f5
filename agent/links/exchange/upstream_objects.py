"""The objects that an exchange link keeps upstream besides its bindings: exchange, queue, internal exchange and canary;
and the record of all that it keeps there.

An internal exchange has the plugin's own type, if the upstream broker knows it.

Why: docs/decisions/0032-few-round-trips.md, docs/decisions/0035-names-over-255-bytes.md,
docs/decisions/0036-plugin-disabled-upstream.md
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.declares import COMMAND_INVALID, Opener, declare, declare_any, declare_on_spare, ensure, is_harmless
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED, one_line
from agent.amqp.rpc import accepted, attempt, demand, look_at_queue, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.refusal_texts import is_in_use, is_not_empty, unlike
from agent.core.addresses.uri import AmqpUri
from agent.core.fields import EMPTY, Table
from agent.core.links.upstream_steps import Known
from agent.core.model import Exchange, LinkSettings
from agent.core.rules import names
from agent.core.rules.declarations import FALLBACK_TYPE, NATIVE_TYPE, PURPOSE, like_exchange, queue_arguments
from agent.core.rules.hops import GroupedBinding, Site
from agent.errors import BrokerError, PermanentError, TransientError
from agent.links.exchange.binder import LeftOut
from agent.links.kind import InDoubtError, KeptError

LEADER_PATIENCE: Final = 10.0
BUILT_IN_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})


async def ensure_exchange(connection: Connection, name: str, like: Exchange, *, spare: Opener) -> bool:
    """Declare the upstream exchange with the downstream's type and attributes if it is missing; return True if it was.

    An old broker closes the whole connection over a type that it doesn't know: such a type is tried on a `spare`
    connection.
    """

    async def declare_missing() -> Call | ChannelClosedError:
        attributes = like_exchange(like)
        is_known = like.type in BUILT_IN_TYPES or connection.server.outlives_unknown_types
        if is_known or not is_harmless(connection, "exchange", name, passive=False):
            return await declare_any(connection, "exchange", name, spare=spare, **attributes)
        found = await declare_on_spare(spare, "exchange", name, closing=COMMAND_INVALID, **attributes)
        if isinstance(found, ConnectionClosedError):
            raise PermanentError(
                f"exchange {name!r} is missing, and its type {like.type!r} is not known there: enable the plugin of "
                "that type, or declare the exchange there",
                where=connection.where,
            ) from found
        return found

    return await ensure(connection, "exchange", name, spare=spare, declaring=declare_missing)


async def ensure_queue(connection: Connection, name: str, settings: LinkSettings, *, spare: Opener) -> tuple[int, str]:
    """Declare the queue; return its number of consumers, and a note if it exists with other arguments."""
    found = await declare_any(connection, "queue", name, spare=spare, durable=True, arguments=queue_arguments(settings))
    if not isinstance(found, ChannelClosedError):
        return found["consumers"], ""
    if found.code != PRECONDITION_FAILED:
        raise refusal(connection, f"declaring queue {name!r}", found)
    seen = await declare(connection, "queue", name, passive=True)
    standing = accepted(connection, f"looking for queue {name!r}", seen)
    differing = unlike(found.what)
    what = f"another {differing}" if differing else "other arguments"
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
    accepted(connection, f"declaring exchange {name!r}", found)
    return False


async def delete_exchange(connection: Connection, name: str) -> None:
    await demand(connection, f"deleting exchange {name!r}", methods.EXCHANGE_DELETE, exchange=name)


async def delete_queue(connection: Connection, name: str, *, if_empty: bool = False, is_quorum: bool = False) -> None:
    """Delete a queue only if it has no consumer, with `if_empty` only if it has no messages; raise TransientError or
    KeptError otherwise. A consumer that just left may still be counted.

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
    found = await attempt(connection, methods.QUEUE_DELETE, queue=name, **conditions)
    if not isinstance(found, ChannelClosedError):
        return
    if found.code == PRECONDITION_FAILED:
        is_used, has_messages = is_in_use(found.what), if_empty and is_not_empty(found.what)
        if (kept := _kept(connection, name, consumers=is_used, messages=has_messages)) is not None:
            raise kept from found
    raise refusal(connection, f"deleting queue {name!r}", found)


def _kept(connection: Connection, name: str, *, consumers: int | None, messages: int) -> BrokerError | None:
    """The error if the queue has to be kept; None if it may be deleted."""
    if consumers:
        return TransientError(f"queue {name!r} is kept: it has another consumer", where=connection.where)
    if messages:
        return KeptError(f"queue {name!r} is kept: messages wait in it", where=connection.where)
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
                look_at_queue(channel, queue),
                channel.ask(methods.BASIC_GET, queue=queue),
                look_at_queue(channel, queue),
            )
    except ChannelClosedError as error:
        if error.code == NOT_FOUND:
            return 0, 0
        if error.code == RESOURCE_LOCKED:  # by a consumer that is the only active one
            return 0, 1
        raise refusal(connection, f"looking into queue {queue!r}", error) from error
    except (TimeoutError, TransientError) as error:  # brokers close the connection over a queue without a leader
        what = f"queue {queue!r} is left: its leader doesn't answer, so what waits in it isn't known"
        raise InDoubtError(what, where=connection.where) from error
    finally:
        channel.leave()
    if got.method is not methods.BASIC_GET_OK:
        return counted["messages"], counted["consumers"]
    is_counted = counted["consumers"] == before["consumers"] + 1
    return counted["messages"] + 1, before["consumers"] if is_counted else None


async def bind_queue(connection: Connection, queue: str, exchange: str) -> None:
    await demand(connection, f"binding queue {queue!r}", methods.QUEUE_BIND, queue=queue, exchange=exchange)


FALLBACK: Final = "bindings are bound again every 25 s instead, to notice that the upstream exchange was deleted"


@dataclass
class Canary:
    """The canary of one link: an auto-delete exchange whose only binding leads to the upstream exchange.

    When the upstream exchange is deleted, the binding goes, and the canary with it; re-creating the exchange doesn't
    bring it back. Nothing is published to it, so nothing reaches the upstream exchange that way.
    """

    connection: Connection
    exchange: str
    queue: str
    name: str | None = field(init=False)
    note: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.name = names.canary(self.exchange, self.queue, self.connection.vhost)

    @property
    def is_needless(self) -> bool:
        """True if nobody can delete the upstream exchange."""
        return names.is_permanent(self.exchange)

    async def place(self) -> bool:
        """Declare and bind the canary. Return True if a deletion of the upstream exchange shows from now on; if not,
        `note` has the reason, and is empty if the canary is needless.

        Raises BrokerError if the upstream exchange is missing.
        """
        self.note = ""
        if self.is_needless:
            return False
        if self.name is None:
            self.note = (
                f"the name of vhost {self.connection.vhost!r} is too long for the exchange that notices deletions: "
                f"{FALLBACK}"
            )
            return False
        refused = await self._declare_and_bind(self.name)
        if refused is None:
            return True
        if refused.code == NOT_FOUND:
            raise refusal(self.connection, f"binding exchange {self.name!r} to {self.exchange!r}", refused)
        self.note = (
            f"{refused.what}: {FALLBACK}. Permissions that help: configure and read on "
            f"'^{names.AGENT_PREFIX}', write on {self.exchange!r}; then restart the link"
        )
        return False

    async def survived(self) -> bool:
        """True if the upstream exchange was not deleted since `place`; a canary that lost its binding is deleted.

        After a broker's restart a look isn't enough: a durable canary outlives an exchange that isn't durable, and a
        canary may exist unbound. The broker refuses to delete it only if it is bound.
        """
        if self.name is None:
            return False
        found = await attempt(self.connection, methods.EXCHANGE_DELETE, exchange=self.name, if_unused=True)
        return isinstance(found, ChannelClosedError) and found.code == PRECONDITION_FAILED

    async def remove(self) -> None:
        if self.name is not None:
            await delete_exchange(self.connection, self.name)

    async def _declare_and_bind(self, name: str) -> ChannelClosedError | None:
        """Declare and bind the canary, with both requests sent at once on a separate channel, which a refusal closes;
        return the refusal, if any."""
        channel = self.connection.wire.begin_channel()
        attributes = {"type": "fanout", "durable": True, "auto_delete": True, "internal": True}
        declared = channel.ask(methods.EXCHANGE_DECLARE, exchange=name, **attributes)
        bound = channel.ask(methods.EXCHANGE_BIND, destination=self.exchange, source=name)
        try:
            await declared
            await bound
        except ChannelClosedError as error:
            if declared.exception() is None:
                await delete_exchange(self.connection, name)  # without a binding it would stay for good
            return error
        finally:
            channel.leave()
        return None


@dataclass(slots=True)
class UpstreamState:
    """The record of what exists upstream for a link; without a letter it isn't known what is bound.

    It holds for one cluster: endpoints that may be used for one another may be several.
    """

    site: Site | None = None
    queue: str = ""
    letter: str | None = None
    bound: frozenset[GroupedBinding] = frozenset()
    arguments: Table = EMPTY  # that the definition asked for
    note: str = ""
    left_out: tuple[LeftOut, ...] = ()
    has_canary: bool = False
    canary_note: str = ""  # why there is none
    restored: str = ""  # that the upstream exchange was missing
    restored_at: float | None = None
    may_have_rival: bool = False  # whoever served the link until now may still be building
    doubtful: list[GroupedBinding] = field(default_factory=list)
    """Groups to bind once more: nothing would have shown a deletion when they were bound, or another agent may have
    replaced what they were bound to since a former session."""

    @property
    def known(self) -> Known | None:
        if self.letter is None or self.site is None:
            return None
        return Known(
            self.site,
            self.queue,
            self.letter,
            self.arguments,
            self.bound,
            has_canary=self.has_canary,
            left_out=frozenset(each.group for each in self.left_out),
            canary_is_refused=bool(self.canary_note) and not self.has_canary,
        )

    def forget_restored(self) -> None:
        self.restored, self.restored_at = "", None

    @property
    def notes(self) -> str:
        """The text for operators about what was built; empty if all is as defined."""
        notes = self.note, self.canary_note, self.restored, _of_left_out(self.left_out)
        return "; ".join(note for note in notes if note)


def _of_left_out(left_out: tuple[LeftOut, ...]) -> str:
    if not left_out:
        return ""
    first, others = left_out[0], len(left_out) - 1
    more = f", nor can {others} more" if others else ""
    return f"the binding with key {one_line(first.group.routing_key)!r} can't be made upstream{more}: {first.why}"


@dataclass
class TypeSupport:
    """Support for the plugin's type by the broker at the end of one connection; `is_known` is None until it was asked,
    at `asked_at`."""

    is_known: bool | None = None
    asked_at: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class PluginTypes:
    """Support for the plugin's type, by connection: what one link finds out holds for all links of that connection."""

    def __init__(self) -> None:
        self.endpoints: set[AmqpUri] = set()  # that knew the type last
        self._found: WeakKeyDictionary[Shared, TypeSupport] = WeakKeyDictionary()

    def of(self, control: Shared) -> TypeSupport:
        return self._found.setdefault(control, TypeSupport())


ASK_AGAIN: Final = 15.0


class InternalExchanges:
    """The internal exchanges of one link, on a connection that it shares: what one link finds out about the broker
    holds for all on it.

    A broker that was away may have come back as another release, or with another set of plugins.
    """

    def __init__(self, types: PluginTypes, control: Shared, *, spare: Opener) -> None:
        """`spare` opens a connection that may be lost."""
        self._types = types
        self._found = types.of(control)
        self._control = control
        self._spare = spare

    async def declare(self, name: str, native: Table) -> bool:
        """Declare an internal exchange; return True if it is of the plugin's type, whose arguments are `native`."""
        found = self._found
        async with found.asking:
            if found.is_known is None:
                found.asked_at = asyncio.get_running_loop().time()
                if self._may_be_asked:
                    return await self._ask(name, native)
                found.is_known = await self._try(name, native)
        speaks = await declare_internal(self._control.connection, name, native=native if found.is_known else None)
        found.is_known = found.is_known and speaks
        return speaks

    async def is_type_known(self, name: str, native: Table) -> bool:
        """True if the plugin is still there; now and then one link asks for all, over which some brokers close the
        connection."""
        found, now = self._found, asyncio.get_running_loop().time()
        if found.is_known and now - found.asked_at >= ASK_AGAIN:
            found.asked_at = now
            try:
                await self._ask(name, native)
            except BrokerError:
                if self._control.connection.is_closed:
                    raise
                found.is_known = False
        return bool(found.is_known)

    @property
    def _may_be_asked(self) -> bool:
        """True if the broker may be asked for the type on the shared connection: an old broker closes it over a type
        that it doesn't know. One that knew it is trusted once."""
        connection = self._control.connection
        return connection.server.outlives_unknown_types or connection.uri in self._types.endpoints

    async def _ask(self, name: str, native: Table) -> bool:
        connection, known = self._control.connection, self._types.endpoints
        known.discard(connection.uri)
        speaks = self._found.is_known = await declare_internal(connection, name, native=native)
        if speaks:
            known.add(connection.uri)
        return speaks

    async def _try(self, name: str, native: Table) -> bool:
        """Declare the internal exchange on a connection that may be lost; return True if it is of the plugin's type. If
        no connection is to be had, the type that every broker knows will do."""
        try:
            async with await self._spare() as connection:
                speaks = await declare_internal(connection, name, native=native)
        except BrokerError:
            return False
        if speaks:
            self._types.endpoints.add(self._control.connection.uri)
        return speaks
