"""The offset up to which a shovel has copied a stream: read when a session begins, and remembered while it runs.

A stream keeps what it has delivered, so nothing at the broker shows what was copied. The offset up to which everything
is settled is kept in a queue beside the stream, and the next session begins behind it: after a restart, a take-over by
another agent, or a lost connection. What was in flight then comes again.

Why: docs/decisions/0064-streams.md
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.declares import Opener, ensure_queue
from agent.amqp.failures import NOT_FOUND
from agent.amqp.publisher import NoQueueError, Publisher
from agent.amqp.rpc import attempt, look_at_queue, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError, Message
from agent.amqp.wire.properties import Properties, encode
from agent.core import fields
from agent.core.fields import Field, Table
from agent.core.links.confirms import LARGEST_OFFSET, StreamOffsets
from agent.core.model import STREAM_OFFSET, QueueSource
from agent.core.rules import names
from agent.core.rules.declarations import offset_queue
from agent.errors import BrokerError, PermanentError, TransientError
from agent.links.flow import Flow

BEFORE_ALL: Final = -1  # the place in a stream of which nothing is copied yet
EVERY: Final = 1.0  # seconds
COMES_WITHIN: Final = 5.0  # a stream delivers what it has at once
LAST_PATIENCE: Final = 5.0
_LARGEST_RECORD: Final = 4096
_PERSISTENT: Final = encode("delivery_mode", 2)
_PROPERTIES: Final = Properties(_PERSISTENT[0], (_PERSISTENT,)).write()

log = structlog.get_logger()


class StreamPlace:
    """The place of one shovel in its stream, over all of its sessions: `begin`, `follow` and `keep` each, and `leave`
    at its end."""

    def __init__(self, link: str, stream: str, queue: str, on_noted: Callable[[], None]) -> None:
        """`link` is its id, for the log. `queue` remembers the place in `stream`."""
        self.queue = queue
        self._link = link
        self._stream = stream
        self._on_noted = on_noted
        self._reached: int | None = None  # the offset up to which everything is settled
        self._remembered: int | None = None  # the one that the queue has
        self._is_delivered = False  # the queue's message was: each delivery may bring it nearer to being dropped
        self._absent: int | None = None  # an offset that the stream doesn't have, as it ends before
        self._offsets = StreamOffsets()
        self._flow: Flow | None = None
        self._shared: Shared | None = None  # the connection that offsets are published on
        self._publisher: Publisher | None = None
        self._missed = ""
        self._unremembered = ""

    @property
    def notes(self) -> str:
        return "; ".join(filter(None, (self._missed, self._unremembered)))

    @property
    def offset(self) -> int | None:
        """The offset up to which everything is settled; None if nothing is known to be."""
        found = None if self._flow is None else self._offsets.up_to(self._flow.settled_up_to)
        if found is not None and (self._reached is None or found > self._reached):
            self._reached = found
        return self._reached

    def forget(self) -> None:
        """Forget what sessions here have reached: another agent has gone on meanwhile."""
        self._flow = self._reached = self._remembered = self._absent = None

    def look_again(self) -> None:
        """Look again whether the stream has the place: an operator asks for it. Until then another stream that grows
        past it would be taken for the former one."""
        self._absent = None

    # The beginning of a session

    async def begin(self, connection: Connection, arguments: Table, *, is_new: bool, spare: Opener) -> Table:
        """The consumer's arguments for this session; `arguments` are those of the definition, and say where the first
        one begins. `is_new`: the stream was missing and has been declared just now. Raise BrokerError if it isn't
        known where to begin."""
        self._missed = ""
        place = await self._find(connection, spare)
        if place is None:
            named = fields.get(arguments, STREAM_OFFSET)
            return _beginning_at(arguments, fields.text("next") if named is None else named)
        if is_new:
            log.warning("the stream was deleted, and is copied from its beginning", link=self._link, offset=place)
            await attempt(connection, methods.QUEUE_DELETE, queue=self.queue)
            self.forget()
            place = self._reached = BEFORE_ALL
        if place == BEFORE_ALL:
            return _beginning_at(arguments, fields.text("first"))
        await self._check(connection, place)
        return _beginning_at(arguments, fields.long(place + 1))

    async def _find(self, connection: Connection, spare: Opener) -> int | None:
        """The place to go on behind; None for the first time. The message is read only where the place isn't known:
        each time counts as a delivery, and a policy may limit these."""
        reached, self._flow, was_missing = self.offset, None, False
        try:
            was_missing = await self._ensure(connection, spare)
        except PermanentError as error:  # it may be there nevertheless
            self._note_unremembered(error)
        if reached is not None and not (was_missing and reached == self._remembered):
            return reached
        record = None if was_missing else await self._record(spare)
        self._reached = None if record is None else self._parsed(record.body, connection.where)
        self._remembered, self._is_delivered = self._reached, record is not None
        return self._reached

    async def _ensure(self, connection: Connection, spare: Opener | None) -> bool:
        """Declare the queue if it is missing; return True if it was. The number of its messages isn't asked for: it is
        0 too while most nodes of a cluster are down."""
        arguments = offset_queue(limits_deliveries=connection.server.limits_deliveries)
        return (await ensure_queue(connection, QueueSource(self.queue, arguments), spare=spare)).was_missing

    async def _record(self, spare: Opener) -> Message | None:
        """The queue's message; None if the broker says that there is none. A place that isn't read would be taken for a
        first run, and overwritten.

        Only the queue's leader can answer a basic.get, and brokers close the connection where there is none, so it is
        asked on a spare one. Who holds the message counts as a consumer.
        """
        found: list[Message] = []
        async with await spare() as connection:
            channel = connection.wire.begin_channel()
            channel.on_message = found.append
            try:
                got = await channel.ask(methods.BASIC_GET, queue=self.queue)
                if got.method is methods.BASIC_GET_OK:
                    return found[0]
                counted = await look_at_queue(channel, self.queue)
            except ChannelClosedError as error:
                if error.code == NOT_FOUND:
                    return None
                raise refusal(connection, f"reading in {self.queue!r} how far the stream is copied", error) from error
            except TransientError as error:
                what = f"queue {self.queue!r} doesn't show how far the stream is copied; the shovel tries again"
                raise TransientError(f"{what}: {error.what}", where=connection.where) from error
            finally:
                channel.leave()
        if counted["messages"] or counted["consumers"]:
            what = f"somebody else looks into queue {self.queue!r}, which holds how far the stream is copied"
            raise TransientError(f"{what}; the shovel tries again", where=connection.where)
        return None

    def _parsed(self, record: bytes, where: str) -> int | None:
        """The offset of a message; None if it is that of another stream, which the shovel has copied before."""
        try:
            found = json.loads(record) if len(record) <= _LARGEST_RECORD else None
        except (ValueError, RecursionError):
            found = None
        match found:
            case {"stream": str(stream), "offset": int(offset)} if BEFORE_ALL <= offset < LARGEST_OFFSET:
                return offset if stream == self._stream else None
        raise PermanentError(
            f"queue {self.queue!r} holds a message that isn't the agent's: delete the queue, and the shovel begins at "
            f"its {STREAM_OFFSET} again",
            where=where,
        )

    async def _check(self, connection: Connection, place: int) -> None:
        """Check that the stream still has the place. A broker asked for an offset behind the end waits for it in
        silence, and skips all before. So the last chunk is asked for, too: it shows whether the broker answers."""
        first: int | None = None
        if self._absent != place:
            starts = fields.long(place), fields.text("last")
            found, last = await _first_messages(connection, self._stream, *(_beginning_at((), each) for each in starts))
            first, of_last = _offset_of(found), _offset_of(last)
            self._absent = place if first is None and of_last is not None and of_last <= place else None
        if self._absent == place:
            raise TransientError(
                f"stream {self._stream!r} ends before offset {place}, up to which it was copied: was it deleted and "
                f"declared again? Pause the shovel, delete queue {self.queue!r}, and resume: then it begins at its "
                f"{STREAM_OFFSET}. If a replica was only late, restart the shovel",
                where=connection.where,
            )
        if first is None:
            raise TransientError(
                f"stream {self._stream!r} delivers nothing at offset {place}, up to which it was copied, within "
                f"{COMES_WITHIN:g} s; the shovel tries again",
                where=connection.where,
            )
        if first > place + 1:
            self._missed = (
                f"the stream had dropped up to {first - place - 1} messages before they were copied: it is copied "
                f"from offset {first} on; keep more in it (max-age, max-length-bytes)"
            )
            log.warning("messages were dropped before they were copied", link=self._link, after=place, first=first)

    def new_offsets(self) -> StreamOffsets:
        """The offsets of the session that begins."""
        self._offsets = StreamOffsets()
        return self._offsets

    def follow(self, flow: Flow) -> None:
        """Follow what the flow settles whose offsets these are."""
        self._flow = flow

    # While it runs, and at its end

    async def keep(self, opener: Callable[[], Awaitable[Shared]]) -> None:
        """Remember the place about once a second, until cancelled. A failure is noted, and stops no message."""
        while True:
            await asyncio.sleep(EVERY)
            await self._remember(opener)

    async def leave(self, opener: Callable[[], Awaitable[Shared]], *, remembers: bool) -> None:
        """End the session; its flow has ended before."""
        if remembers:
            try:
                async with asyncio.timeout(LAST_PATIENCE):
                    await self._remember(opener)
            except TimeoutError:
                log.warning("the place in the stream wasn't remembered in time", link=self._link)
        await self._let_go()

    async def _remember(self, opener: Callable[[], Awaitable[Shared]]) -> None:
        offset = self.offset
        if offset is None or (offset == self._remembered and not self._is_delivered):
            return
        record = json.dumps({"stream": self._stream, "offset": offset}).encode()
        publisher, self._publisher = self._publisher, None  # it has no second use if this is cancelled
        try:
            if publisher is None:
                self._shared = self._shared or await opener()
                publisher = Publisher(self._shared.connection)
                await publisher.open()
            await self._publish(publisher, record)
            self._publisher = publisher
        except BrokerError as error:
            self._note_unremembered(error)
            return
        finally:
            if publisher is not None and self._publisher is None:
                publisher.leave()
            if self._shared is not None and self._shared.connection.is_closed:
                await self._let_go()
        self._remembered, self._is_delivered = offset, False
        if self._unremembered:
            self._unremembered = ""
            self._on_noted()

    async def _publish(self, publisher: Publisher, record: bytes) -> None:
        try:
            await publisher.publish("", self.queue, _PROPERTIES, record)
        except NoQueueError:
            assert self._shared is not None
            await self._ensure(self._shared.connection, None)
            await publisher.publish("", self.queue, _PROPERTIES, record)

    def _note_unremembered(self, error: BrokerError) -> None:
        self._unremembered = (
            f"how far the stream is copied can't be remembered in queue {self.queue!r}, so a restart of the agent may "
            f"copy it again from the {STREAM_OFFSET} of the definition: {error}"
        )
        self._on_noted()

    async def _let_go(self) -> None:
        if self._publisher is not None:
            self._publisher.leave()
        shared, self._shared, self._publisher = self._shared, None, None
        if shared is not None:
            await shared.release()


async def _first_messages(connection: Connection, stream: str, *consumers: Table) -> list[Message | None]:
    """The first message that a stream delivers to each of these consumers, given by their arguments, once the first one
    has any, or none comes."""
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    tags = [f"{names.AGENT_PREFIX}looking {number}" for number in range(len(consumers))]
    found: dict[str, Message] = {}

    def take(message: Message) -> None:
        tag = message.call["consumer_tag"]
        found.setdefault(tag, message)
        if tag == tags[0] and not first.done():
            first.set_result(None)

    channel = connection.wire.begin_channel()
    channel.on_message = take
    try:
        await channel.ask(methods.BASIC_QOS, prefetch_count=1)
        for tag, arguments in zip(tags, consumers, strict=True):
            await channel.ask(methods.BASIC_CONSUME, queue=stream, consumer_tag=tag, arguments=arguments)
        await asyncio.wait((first, channel.closed), timeout=COMES_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        if channel.closed.done() and not first.done():
            raise channel.closed.result()
    except ChannelClosedError as error:
        raise refusal(connection, f"looking into {stream!r}", error) from error
    finally:
        channel.leave()
    return [found.get(tag) for tag in tags]


def _offset_of(message: Message | None) -> int | None:
    found = None if message is None else fields.get(message.properties.headers, STREAM_OFFSET)
    return found.value if found is not None and found.tag == "l" else None


def _beginning_at(arguments: Table, offset: Field) -> Table:
    return (*fields.without(arguments, STREAM_OFFSET), (STREAM_OFFSET, offset))
