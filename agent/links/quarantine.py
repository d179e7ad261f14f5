"""Puts messages that the downstream can never take into a queue beside their source; see docs/quarantine.md."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from agent.amqp.connect import Connection
from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.data.quarantined import Capture, Captured, Room, Why, enclosed
from agent.amqp.data.rewriting import Destination
from agent.amqp.declares import Opener, declare, declare_on_spare, is_replicated
from agent.amqp.failures import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED
from agent.amqp.publisher import NoQueueError, Publisher
from agent.amqp.rpc import accepted, refusal
from agent.amqp.wire.channel import ChannelClosedError, UnansweredError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.tables import CodecError
from agent.core import fields
from agent.core.model import QueueType
from agent.core.rules import declarations, quarantine
from agent.errors import BrokerError
from agent.tasks import GuardedTasks, UnexpectedErrors

LARGEST_TOGETHER: Final = 128 * 1024 * 1024  # bytes; what is larger than a broker's largest message by default waits
MOST_WAITING: Final = 48 * 1024 * 1024
"""The most bytes on their way to the quarantine. While there are more, sources are not read: a burst would take memory
for all of it, and what finds no room goes back and comes again much later."""
LONGEST_HOLD: Final = 5.0  # seconds: what follows flows, also where the quarantine takes nothing
TASK: Final = "put messages into quarantine"

log = structlog.get_logger()


class HoldsReading(Protocol):
    """The connection that messages come from, whose reading can be held back."""

    def hold(self, holder: object) -> None:
        """Take nothing more off the socket until every holder has let go."""

    def release(self, holder: object) -> None:
        """Let go of what this holder holds."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One link's way to the quarantine beside its source, which is to be as safe as the `queue` that the messages come
    from.

    `is_quorum`: that queue is replicated, as far as its definition shows; it may have been there before. None if the
    definition doesn't show it.
    """

    link: str
    reader: HoldsReading
    queue: str
    is_quorum: bool | None
    destination: Destination
    opener: Opener


@dataclass(frozen=True, slots=True)
class _Parcel:
    captured: Captured
    target: PublishTracker
    lane: Lane
    time: int

    @property
    def is_wanted(self) -> bool:
        """True if the delivery can still be settled; otherwise it comes again, and goes to the quarantine then."""
        return self.target.can_settle

    @property
    def why(self) -> Why:
        destination, delivery = self.lane.destination, self.captured.delivery
        exchange, key = destination.exchange, destination.routing_key
        return Why(
            self.captured.reason,
            self.lane.link,
            self.time,
            delivery.exchange if exchange is None else exchange.encode(errors="surrogateescape"),
            delivery.routing_key if key is None else key.encode(errors="surrogateescape"),
            delivery.exchange,
            delivery.routing_key,
        )


class _Brake:
    """Holds back the reading from sources while too much is on its way. Only complete messages count: the rest of an
    incomplete one would never come."""

    def __init__(self) -> None:
        self._waiting = 0
        self._held: set[HoldsReading] = set()
        self._is_worn = False  # it has held for as long as it may
        self._ends: asyncio.TimerHandle | None = None

    def press(self, reader: HoldsReading, size: int) -> None:
        self._waiting += size
        if self._waiting <= MOST_WAITING or self._is_worn:
            return
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(LONGEST_HOLD, self._wear)
        self._held.add(reader)
        reader.hold(self)

    def ease(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= MOST_WAITING // 2:
            self._is_worn = False
            self._release()

    def _wear(self) -> None:
        self._is_worn = True
        self._release()

    def _release(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None
        while self._held:
            self._held.pop().release(self)


class Quarantines:
    """The quarantines of one agent. The messages of one link arrive in their order."""

    def __init__(self, errors: UnexpectedErrors) -> None:
        self._room = Room(LARGEST_TOGETHER)
        self._tasks = GuardedTasks(errors)
        self._places: dict[object, deque[_Parcel]] = {}  # on their way to the quarantine of one broker
        self._brake = _Brake()

    def capture(self, place: object, target: PublishTracker, lane: Lane) -> Capture:
        """The collector for one flow; flows with an equal `place` share a connection while messages are on their
        way."""
        return Capture(
            self._room, lambda captured: self._take(place, _Parcel(captured, target, lane, int(time.time())))
        )

    def _take(self, key: object, parcel: _Parcel) -> None:
        try:
            parcel.target.quarantine_started(parcel.captured.tag, parcel.captured.reason)
        except CodecError:
            self._room.give_back(parcel.captured.size)
            raise
        is_idle = key not in self._places
        waiting = self._places.setdefault(key, deque())
        waiting.append(parcel)
        if is_idle:
            self._tasks.once(TASK, self._work(key, waiting))
        self._brake.press(parcel.lane.reader, parcel.captured.size)

    async def _work(self, key: object, waiting: deque[_Parcel]) -> None:
        """Carry messages until none wait; more may come while the connection is being closed."""
        try:
            while waiting:
                await self._carry(waiting)
        finally:
            del self._places[key]
            self._leave_all(waiting, "an unexpected error: see the log")

    async def _carry(self, waiting: deque[_Parcel]) -> None:
        try:
            async with await waiting[0].lane.opener() as connection:
                refused = await _ensure(connection, waiting[0].lane)
                publisher = Publisher(connection)
                await publisher.open()
                await self._carry_by(publisher, waiting, refused)
        except BrokerError as error:
            self._leave_all(waiting, str(error))

    async def _carry_by(self, publisher: Publisher, waiting: deque[_Parcel], refused: BrokerError | None) -> None:
        """Publish messages until one costs the channel: those behind it go by another. The first is always tried.
        `refused` is the reason why the queue may be missing."""
        while True:
            parcel = waiting[0]
            error: BrokerError | None = None
            if parcel.is_wanted:
                try:
                    await self._put(publisher, parcel)
                except UnansweredError:  # the next would wait as long in vain
                    raise
                except NoQueueError as failure:
                    error = refused or failure
                except BrokerError as failure:
                    error = failure
            waiting.popleft()
            if error is None:
                self._done(parcel)
            else:
                self._leave(parcel, str(error))
            if not waiting or not publisher.is_usable:
                return

    async def _put(self, publisher: Publisher, parcel: _Parcel) -> None:
        captured = parcel.captured
        room = publisher.room_for_properties
        # Headers may be as large as a frame, and reading them would hold up all links.
        properties = await asyncio.to_thread(enclosed, captured.properties, parcel.why, room=room)
        await publisher.publish("", quarantine.QUEUE, properties, captured.body)

    def _done(self, parcel: _Parcel) -> None:
        captured = parcel.captured
        self._give_back(captured.size)
        if not parcel.is_wanted:
            parcel.target.quarantine_failed(captured.tag, captured.excess, "the link has ended")
            return
        parcel.target.quarantine_done(captured.tag)
        log.warning(
            "message put into quarantine",
            link=parcel.lane.link,
            reason=captured.reason,
            bytes=len(captured.body),
            queue=quarantine.QUEUE,
        )

    def _leave_all(self, waiting: deque[_Parcel], why: str) -> None:
        """Give up all messages that wait: they come again."""
        while waiting:
            self._leave(waiting.popleft(), why)

    def _leave(self, parcel: _Parcel, why: str) -> None:
        captured = parcel.captured
        self._give_back(captured.size)
        parcel.target.quarantine_failed(captured.tag, captured.excess, why)

    def _give_back(self, size: int) -> None:
        self._room.give_back(size)
        self._brake.ease(size)


async def _ensure(connection: Connection, lane: Lane) -> BrokerError | None:
    """Declare the quarantine if it is missing; an existing one is used as it is. Return the refusal if it isn't known
    whether it exists: brokers of 4.3 show that only to users who may declare it."""
    found = await declare(connection, "queue", quarantine.QUEUE, passive=True)
    if isinstance(found, ChannelClosedError) and found.code == NOT_FOUND:
        await _declare(connection, lane)
    if isinstance(found, ChannelClosedError) and found.code == ACCESS_REFUSED:
        return refusal(connection, f"declaring queue {quarantine.QUEUE!r}", found)
    return None


async def _declare(connection: Connection, lane: Lane) -> None:
    """Declare the quarantine, replicated if the source is. If nothing shows whether the source is, the quarantine is,
    if the broker takes such queues."""
    found = await is_replicated(connection, lane.queue)
    is_quorum = lane.is_quorum if found is None else found
    if is_quorum is None:
        is_quorum = await _takes_quorum(connection, lane)
    declared = await declare(connection, "queue", quarantine.QUEUE, **_attributes(connection, is_quorum=is_quorum))
    accepted(connection, f"declaring queue {quarantine.QUEUE!r}", declared)


async def _takes_quorum(connection: Connection, lane: Lane) -> bool:
    """Declare the quarantine as a quorum queue, on a separate connection, which some brokers close if they have no such
    queues; return False if the broker takes none."""
    attributes = _attributes(connection, is_quorum=True)
    found = await declare_on_spare(lane.opener, "queue", quarantine.QUEUE, **attributes)
    if isinstance(found, ConnectionClosedError):
        return False
    return not (isinstance(found, ChannelClosedError) and found.code == PRECONDITION_FAILED)


def _attributes(connection: Connection, *, is_quorum: bool) -> dict[str, Any]:
    """The attributes of the quarantine, with its type in any case: the vhost's default may be another. A quorum queue
    has no delivery limit: looking into such a queue counts as a delivery, and a limit would empty it."""
    arguments = [(declarations.TYPE, fields.text(QueueType.QUORUM if is_quorum else QueueType.CLASSIC))]
    if is_quorum and connection.server.limits_deliveries:
        arguments.append(("x-delivery-limit", fields.long(-1)))
    return {"durable": True, "arguments": tuple(arguments)}
