"""The leases of one group at the broker: a queue for each slot, of which only one consumer is active at a time.

Each queue holds a token. The replica that receives it holds the slot until its consumer or its connection ends; then
the broker delivers the token to the next consumer. No replica has to ask again and again. A deadline says until when
this agent may run links, so that one that was stopped or cut off doesn't forward beside its successor.

Why: docs/decisions/0049-leases-in-queues.md
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.declares import declare
from agent.amqp.failures import ACCESS_REFUSED, PRECONDITION_FAILED
from agent.amqp.rpc import look_at_queue
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, ChannelClosedError, Message
from agent.amqp.wire.ends import STANDSTILL, HeartbeatMissedError, Permit, StoodStillError
from agent.core import fields
from agent.core.addresses.uri import DEFAULT_HEARTBEAT
from agent.core.fields import Table
from agent.core.replicas import slots
from agent.core.replicas.messages import Asked
from agent.core.replicas.sharing import LEASE, Sharing
from agent.core.replicas.slots import Token
from agent.core.rules.names import AGENT_PREFIX
from agent.errors import AgentError, BrokerError, PermanentError, Side, TransientError
from agent.tasks import GuardedTasks, retrieve

_MESSAGES: Final = "messages"
_EXPIRES: Final = 30 * 24 * 3600 * 1000  # milliseconds without any agent
_HOLDER_FIRST: Final = 1.0  # seconds
_AT_ONCE: Final = 16  # queues that are declared, each on a channel of its own
_MOST_WAITING: Final = 1_000  # messages to one replica
_MOST_UNCONFIRMED: Final = 10_000
_PERSISTENT: Final = struct.pack(">HB", 0x1000, 2)
_PLAIN: Final = struct.pack(">H", 0)


class LeasesRefusedError(PermanentError):
    """The broker doesn't permit leases to this user."""


class UnconfirmedRequests:
    """Requests of operators that this agent passed on, until the broker has confirmed that the others will receive
    them. The broker confirms everything that is published on the channel, by its number."""

    def __init__(self) -> None:
        self._published = 0
        self._waiting: deque[tuple[int, Asked]] = deque(maxlen=_MOST_UNCONFIRMED)

    def count(self) -> None:
        """Count a message that was published."""
        self._published += 1

    def expect(self, asked: Asked) -> None:
        """Keep a request that was published last, or couldn't be."""
        self._waiting.append((self._published, asked))

    def confirmed(self, call: methods.Call) -> None:
        number, are_all = call["delivery_tag"], call["multiple"]
        if call.method is methods.BASIC_ACK and self._waiting:
            left = [each for each in self._waiting if each[0] > number or (each[0] < number and not are_all)]
            self._waiting = deque(left, _MOST_UNCONFIRMED)

    def __iter__(self) -> Iterator[Asked]:
        return (asked for _, asked in self._waiting)


class LeaseChannel:
    """The channel of the leases. Call `open`, then `subscribe`.

    `on_token` is called with the slot, the delivery's tag and the token; `on_lost` with a slot whose queue is gone, and
    is declared again; `on_message` with what another replica says.

    Nothing is published on the connection of the leases: a broker with an alarm reads nothing more of one that
    publishes, not even that it has ended. `talk` is the connection for that.
    """

    def __init__(
        self,
        connection: Connection,
        talk: Connection,
        group: str,
        replica: str,
        *,
        tasks: GuardedTasks,
        on_token: Callable[[int, int, bytes], None],
        on_lost: Callable[[int], bytes | None],
        on_message: Callable[[bytes], None],
    ) -> None:
        self._connection = connection
        self._talk = talk
        self._talking: Channel = talk.wire.begin_channel()
        self.unconfirmed = UnconfirmedRequests()
        self._talking.on_confirm = self.unconfirmed.confirmed
        self._on_lost = on_lost
        self._tasks = tasks
        self._group = group
        self._replica = replica
        self._on_token = on_token
        self._on_message = on_message
        self._channel: Channel = connection.wire.begin_channel()
        self._kind = "classic"
        self._tags: dict[int, str] = {}
        self._rounds = 0

    @property
    def ends(self) -> set[asyncio.Future[BrokerError]]:
        channels, connections = (self._channel, self._talking), (self._connection, self._talk)
        return {*(each.closed for each in channels), *(each.wire.closed for each in connections)}

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """The error that the channel has ended with, in an operator's words."""
        error = end.result()
        return self._refused(error, is_opening=False) if isinstance(error, ChannelClosedError) else error

    @property
    def live_at(self) -> float:
        """The time at which the broker and this agent last received something from each other, as far as this agent can
        know: the earlier of the last read and the last write."""
        wire = self._connection.wire
        return min(wire.inbound.heard, wire.said)

    def beat(self) -> None:
        """Send a heartbeat, more often than the broker needs it: the older the last contact, the shorter what runs here
        may go on."""
        if self._is_usable:
            self._connection.wire.write(frames.HEARTBEAT_FRAME)

    @property
    def may_publish(self) -> bool:
        """True if the broker takes messages now. While it has an alarm, published messages wait in the connection."""
        return self._talking.is_usable and not self._talk.is_closed and self._talk.blocked is None

    @property
    def _is_usable(self) -> bool:
        return self._channel.is_usable and not self._connection.is_closed

    async def open(self) -> None:
        """Join the group: from now on the messages of the others arrive. Raises LeasesRefusedError without
        permission."""
        with self._opening():
            exchange = slots.exchange(self._group)
            queue = slots.own_queue(self._group, self._replica)
            channel = self._channel
            declared = self._declare_exchange(exchange, "fanout")
            leases = self._declare_exchange(slots.lease_exchange(self._group), "direct")
            confirming = self._talking.ask(methods.CONFIRM_SELECT)
            limit = (("x-max-length", fields.long(_MOST_WAITING)),)
            made = channel.ask(methods.QUEUE_DECLARE, queue=queue, exclusive=True, auto_delete=True, arguments=limit)
            bound = channel.ask(methods.QUEUE_BIND, queue=queue, exchange=exchange)
            channel.on_message, channel.on_cancel = self._received, self._cancelled
            heard = channel.ask(methods.BASIC_CONSUME, queue=queue, consumer_tag=_MESSAGES, no_ack=True)
            await _all((confirming, declared, leases, made, bound, heard))

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except ChannelClosedError as error:
            raise self._refused(error, is_opening=True) from error

    def _declare_exchange(self, name: str, kind: str) -> asyncio.Future[methods.Call]:
        return self._channel.ask(methods.EXCHANGE_DECLARE, exchange=name, type=kind, durable=True)

    async def subscribe(self, *, prefers_quorum: bool) -> frozenset[int]:
        """Consume from the queues of all slots; returns the slots without a token, because their queue is new."""
        self._kind = "quorum" if prefers_quorum else "classic"
        with self._opening():
            for first in range(0, slots.SLOTS, _AT_ONCE):
                await asyncio.gather(*(self._declare(slot) for slot in range(first, first + _AT_ONCE)))
            bound = [self._bind(slot) for slot in range(slots.SLOTS)]
            declared = [look_at_queue(self._channel, self._queue(slot)) for slot in range(slots.SLOTS)]
            consuming = [self._consume(slot) for slot in range(slots.SLOTS)]
            found = await _all(declared)
            await _all((*bound, *consuming))
        return frozenset(
            slot for slot, answer in enumerate(found) if not answer["messages"] and not answer["consumers"]
        )

    async def _declare(self, slot: int) -> None:
        """Declare a slot's queue. One of the other type is as good: it was declared when the cluster had more or fewer
        nodes."""
        arguments = self._arguments(self._kind)
        found = await declare(self._connection, "queue", self._queue(slot), durable=True, arguments=arguments)
        if isinstance(found, ChannelClosedError) and found.code != PRECONDITION_FAILED:
            raise found

    def _arguments(self, kind: str) -> Table:
        chosen = (
            ("x-single-active-consumer", fields.boolean(True)),
            ("x-expires", fields.long(_EXPIRES)),
            ("x-queue-type", fields.text(kind)),
        )
        if kind == "quorum" and self._connection.server.limits_deliveries:
            return (*chosen, ("x-delivery-limit", fields.long(-1)))  # each handover would count
        return chosen

    def _queue(self, slot: int) -> str:
        return slots.lease_queue(self._group, slot)

    def _bind(self, slot: int) -> asyncio.Future[methods.Call]:
        exchange = slots.lease_exchange(self._group)
        return self._channel.ask(methods.QUEUE_BIND, queue=self._queue(slot), exchange=exchange, routing_key=str(slot))

    def _consume(self, slot: int) -> asyncio.Future[methods.Call]:
        """Consume under a new tag each time: a token that is still on its way to a cancelled consumer gives no slot."""
        self._rounds += 1
        tag = self._tags[slot] = f"{slot}.{self._rounds}"
        return self._channel.ask(methods.BASIC_CONSUME, queue=self._queue(slot), consumer_tag=tag)

    def give(self, slot: int, delivery: int) -> None:
        """Pass a slot on to the replica that has waited for longest, and wait for it again behind all others."""
        if self._is_usable and slot in self._tags:
            self.leave(slot, delivery)
            self._consume(slot).add_done_callback(retrieve)

    def leave(self, slot: int, delivery: int | None) -> None:
        """Pass a slot on, if it was held by this delivery, and stop waiting for it."""
        tag = self._tags.pop(slot, None)
        if tag is None or not self._is_usable:
            return
        self._channel.ask(methods.BASIC_CANCEL, consumer_tag=tag).add_done_callback(retrieve)
        if delivery is not None:
            self._channel.send(methods.BASIC_NACK, delivery_tag=delivery, requeue=True)

    def acknowledge(self, delivery: int) -> None:
        if not self._is_usable:
            return
        self._channel.send(methods.BASIC_ACK, delivery_tag=delivery)

    def put_token(self, slot: int, token: bytes) -> None:
        """Publish a token; it is delivered to the replica that holds the slot."""
        self._publish(slots.lease_exchange(self._group), str(slot), _PERSISTENT, token)

    def say(self, message: bytes) -> None:
        self._publish(slots.exchange(self._group), "", _PLAIN, message)

    def pass_on(self, asked: Asked) -> None:
        self.say(asked.encode())
        self.unconfirmed.expect(asked)

    def _publish(self, exchange: str, routing_key: str, properties: bytes, body: bytes) -> None:
        if self._talking.is_usable and not self._talk.is_closed:
            self._talking.publish(exchange, routing_key, properties, body)
            self.unconfirmed.count()

    def _received(self, message: Message) -> None:
        tag = message.call["consumer_tag"]
        if tag == _MESSAGES:
            self._on_message(message.body)
            return
        slot, delivery = int(tag.partition(".")[0]), message.call["delivery_tag"]
        if self._tags.get(slot) == tag:
            self._on_token(slot, delivery, message.body)
        else:
            self._channel.send(methods.BASIC_NACK, delivery_tag=delivery, requeue=True)

    def _cancelled(self, tag: str) -> None:
        """Restore the lease of a consumer that the broker cancelled: its queue was deleted, or the node that had it is
        down."""
        slot = next((slot for slot, each in self._tags.items() if each == tag), None)
        if slot is None:
            self._connection.wire.abort(TransientError("the agent's own queue was deleted"))
            return
        del self._tags[slot]
        token = self._on_lost(slot)
        self._tasks.once("restore a lease", self._restore(slot, token), slot=slot)

    async def _restore(self, slot: int, token: bytes | None) -> None:
        """Declare the queue of a lost slot again. If that fails, all leases begin again. The replica that held the slot
        puts its token there; the others wait first, since their token carries nothing."""
        try:
            await self._declare(slot)
            await _all((self._bind(slot), self._consume(slot)))
        except AgentError as error:
            self._connection.wire.abort(TransientError(f"a lease can't be restored: {error}"))
            return
        if token is None:
            await asyncio.sleep(_HOLDER_FIRST)
        self.put_token(slot, token or Token().encode())

    def _refused(self, error: ChannelClosedError, *, is_opening: bool) -> BrokerError:
        where, doing = self._connection.where, "sharing links with other agents of the group"
        if error.code != ACCESS_REFUSED or not is_opening:
            return TransientError(error.what, where=where, doing=doing, cause=error)
        advice = f"grant configure, write and read on '^{AGENT_PREFIX}' in vhost {self._connection.vhost!r}"
        return LeasesRefusedError(f"{error.what}; {advice}", where=where, doing=doing, cause=error)


async def _all(answers: Iterable[asyncio.Future[methods.Call]]) -> list[methods.Call]:
    """The responses; raises the first error. A refusal fails the first of them, and the others end with it."""
    found = await asyncio.gather(*answers, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]


TICK: Final = 0.25
SURELY_KEPT: Final = 1.5 * DEFAULT_HEARTBEAT
"""Seconds for which no broker takes a silent connection for lost, and gives its messages to another agent, as long as
no other agent is there, which would make heartbeats short: it waits for two intervals, and half of one may have been
silent."""


def no_lease(why: str, cause: BrokerError) -> TransientError:
    """The error of links whose lease is lost: leases are in the downstream."""
    what = f"downstream {why}: the lease of links is lost, and another agent may run them"
    return TransientError(what, side=Side.DOWNSTREAM, cause=cause)


class LeaseDeadline:
    """Extends the permit to run links while nothing speaks against it."""

    def __init__(self, permit: Permit, sharing: Sharing) -> None:
        self._permit = permit
        self._sharing = sharing
        self._loop = asyncio.get_running_loop()
        self.had_peers_at = 0.0
        """The time at which other agents were last in the group; 0 where that is long ago."""
        self._moved_at = self._loop.time()
        self.is_severed = False
        """True from the time when others may run all links until it is known what runs here."""

    @property
    def has_ended(self) -> bool:
        return self._loop.time() > self._permit.until

    def why_ended(self) -> TransientError:
        """The error that links end with. The permit is extended several times a second, unless the agent itself stands
        still."""
        if self._loop.time() - self._moved_at > STANDSTILL:
            return StoodStillError()
        return no_lease("silent for too long", HeartbeatMissedError())

    def move(self, lease: LeaseChannel | None) -> None:
        now = self._moved_at = self._loop.time()
        if lease is not None:
            self._permit.until = self._end_of_lease(lease, now)
        elif self.is_severed and not self._sharing.failure:
            self._permit.until = -math.inf
        else:
            self._permit.until = self._end_if_alone(now)

    def _end_of_lease(self, lease: LeaseChannel, now: float) -> float:
        # Others can't answer during an alarm.
        if self._sharing.is_alone and lease.may_publish and self._sharing.hears_others(now):
            return self._end_if_alone(now)
        return lease.live_at + LEASE

    def _end_if_alone(self, now: float) -> float:
        """The end of the permit without peers or without a lease. An agent that was frozen may have got peers without
        knowing it, and so may one without a lease. Where it had none for long, its connections are such that brokers
        keep them for longer than a short standstill lasts."""
        if self._sharing.refusal:
            return math.inf
        return now + (LEASE if self.had_peers_at else SURELY_KEPT)
