"""One link's messages: the channels they travel on, how many may be on the way, and how that ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.data.returns import LONGEST, SPARINGLY
from agent.amqp.data.scrutiny import Scrutiny
from agent.amqp.data.splice import Counts, Rewriter, Source, Target
from agent.amqp.data.target import largest_taken
from agent.amqp.failures import ACCESS_REFUSED, blames_message, one_line
from agent.amqp.questions import refusal
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.tables import CodecError
from agent.core.links import prefetch
from agent.core.links.suspicion import Suspicion, Watch
from agent.core.model import AckMode, Link, QueueType
from agent.core.rules import names
from agent.errors import BrokerError, PermanentError, Side, TransientError, happening_on
from agent.links.errors import ServedElsewhereError

SETTLE_PATIENCE: Final = 5.0
BLOCKED_PATIENCE: Final = 1.0
FULL_PATIENCE: Final = 1.0
BETWEEN_LOOKS: Final = 0.005
LARGEST_IS_KNOWN: Final = 600.0


class DiscardDeliveries:
    """Lets a channel's messages fall, and nothing else: they go back to their queue when it closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def take(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: ARG002 - one frame at a time will do
        kind, _, size = frames.PREFIX.unpack_from(buffer, at)
        after: int = at + frames.OVERHEAD + size
        payload = bytes(buffer[at + 7 : after - 1])
        if kind == frames.METHOD and not methods.decode(payload).method.content:
            self._channel.received(kind, payload)
        elif kind == frames.BODY and not payload:
            raise CodecError("a body frame without a body")
        return after


@dataclass
class LearnedPath:
    """What a link has learned of its path, kept from one session to the next."""

    prefetch: int = prefetch.START  # where the link may size it
    largest: int | None = None  # what the downstream takes of a body, as it said when it refused one
    largest_until: float = 0.0  # it may be configured to take more meanwhile
    fruitless: int = 0  # sessions in a row that brought messages and confirmed none
    suspicion: Suspicion = field(default_factory=Suspicion)


@dataclass(slots=True)
class _Progress:
    """What had come through when the prefetch was last thought about."""

    at: float
    messages: int
    bytes: int


class Flow:
    """`start`, then `close` and `leave`; only `leave` never raises BrokerError."""

    def __init__(
        self, link: Link, queue: str, *, up: Connection, down: Connection, counts: Counts, path: LearnedPath
    ) -> None:
        self._link = link
        self._queue = queue
        self._up = up
        self._down = down
        self._counts = counts
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._into: Channel | None = None
        self._out: Channel | None = None
        self._target: Target | None = None
        self._source: Source | None = None
        self._flows = False
        self._consumed: asyncio.Future[Call] | None = None
        self._cancelled: asyncio.Future[BrokerError] = self._loop.create_future()
        self._consumers = 1
        self._window = 0  # the prefetch of the consumer that is
        self._for_unfit = 0  # of it, so many for messages that are held and get nowhere
        self._watch = path.suspicion.watch(self._loop.time())
        self._scrutiny: Scrutiny | None = None
        self._round_trip = 0.0
        self._progress = self._count(self._loop.time())
        self._forwarded_before = counts.forwarded
        # A quorum queue may drop what came back too often, and says nothing of it.
        self._is_counted = link.settings.queue_type is QueueType.QUORUM

    @property
    def prefetch(self) -> int:
        """How many messages the broker may send ahead; none is counted where nothing is acknowledged."""
        if self._link.settings.ack_mode is AckMode.NO_ACK:
            return 0
        return min(self._flowing + self._for_unfit, prefetch.LARGEST)

    @property
    def _flowing(self) -> int:
        """How many of them may be on the way."""
        if self._is_single:
            return 1
        size = self._link.settings.prefetch_count or self._path.prefetch
        return min(size, prefetch.CAREFUL) if self._is_careful else size

    @property
    def _is_single(self) -> bool:
        return self._path.suspicion.watch(self._loop.time()) is Watch.ONE_BY_ONE

    @property
    def is_watched(self) -> bool:
        """Whether it was begun under suspicion."""
        return self._watch is not Watch.OFF

    @property
    def trouble(self) -> str:
        """What an operator should know of messages that don't go through; empty where all do."""
        return self._target.trouble if self._target else ""

    @property
    def _is_careful(self) -> bool:
        return self._is_counted and self._path.fruitless >= prefetch.FRUITLESS

    @property
    def in_flight(self) -> int:
        return self._target.confirms.in_flight if self._target else 0

    @property
    def unsettled(self) -> int:
        """Messages that upstream has delivered and has heard nothing of."""
        return self._target.confirms.in_flight + self._target.confirms.held if self._target else 0

    @property
    def oldest_unconfirmed(self) -> float | None:
        """Since when, in the loop's time, the oldest of them waits for its confirm."""
        return self._target.oldest_unconfirmed if self._target else None

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        """What breaks the link when it is done."""
        return [self._cancelled, *(channel.closed for channel in self._channels)]

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """Why the link broke, with the side."""
        error = end.result()
        is_downstream = self._into is not None and end is self._into.closed
        if not isinstance(error, ChannelClosedError):
            error.side = Side.DOWNSTREAM if is_downstream else Side.UPSTREAM
            return error
        side = self._down if is_downstream else self._up
        is_refused = error.code == ACCESS_REFUSED and not _is_consumed_by_another(error)
        kind = PermanentError if is_refused else TransientError
        told = kind(f"{side.where}: {one_line(str(error))}")
        told.__cause__ = error
        told.side = Side.DOWNSTREAM if is_downstream else Side.UPSTREAM
        return told

    async def start(self, rewriter: Rewriter, *, exchange: str) -> None:
        """Channels on both sides, and the consumer."""
        path = self._path
        into = self._into = self._down.wire.begin_channel()
        out = self._out = self._up.wire.begin_channel()
        await self._ask_for_confirms(into)
        out.on_cancel = self._tell_cancelled
        target = self._target = Target(
            into,
            self._down.wire,
            self._counts,
            ack_mode=self._link.settings.ack_mode,
            settle=self._up.wire.write_soon,
            largest=path.largest if self._loop.time() < path.largest_until else None,
            longest_return=SPARINGLY if self._is_dear else LONGEST,
        )
        into.closed.add_done_callback(self._learn)
        if self._watch is not Watch.OFF:
            self._scrutiny = Scrutiny(path.suspicion, self._loop.time, lambda: target.confirms.unconfirmed)
            self._for_unfit = path.suspicion.culprits(self._loop.time())
        source = self._source = Source(
            out, target, rewriter, exchange=exchange, mandatory=True, scrutiny=self._scrutiny
        )
        self._down.wire.divert(into.number, target)
        self._up.wire.divert(out.number, source)
        self._down.wire.fed_by(self._up.wire)
        self._flows = True
        self._ask_to_consume(out)
        await self._begun()

    async def _ask_for_confirms(self, into: Channel) -> None:
        with happening_on(Side.DOWNSTREAM):
            try:
                await into.ask(methods.CONFIRM_SELECT, methods.CONFIRM_SELECT_OK)
            except ChannelClosedError as error:
                raise refusal(self._down, "asking for confirms", error) from error

    def better_prefetch(self, now: float) -> int | None:
        """What the last while tells of the path, where another prefetch would suit it; asked about once a second."""
        settings, before, self._progress = self._link.settings, self._progress, self._count(now)
        messages, octets = self._progress.messages - before.messages, self._progress.bytes - before.bytes
        if self._is_careful and self._counts.forwarded != self._forwarded_before:
            self._path.fruitless = 0
        if settings.ack_mode is AckMode.NO_ACK:
            return None
        if self._make_room():
            return self.prefetch
        if messages <= 0:
            return None
        if self._window != self.prefetch:
            return self.prefetch
        if settings.prefetch_count or self._is_careful or self._is_single:
            return None
        flowing = self._window - self._for_unfit
        wanted = prefetch.sized(
            flowing,
            unsettled=self.unsettled - self._held_unfit,
            rate=messages / max(now - before.at, 0.001),
            round_trip=self._round_trip,
            average_size=octets / messages,
        )
        # Less can't be had without disorder, see `_has_come`; reading is held where too much comes.
        if wanted == flowing or (self._is_counted and wanted < flowing):
            return None
        return wanted + self._for_unfit

    @property
    def _held_unfit(self) -> int:
        return self._target.held_unfit if self._target else 0

    def _make_room(self) -> bool:
        """Whether a larger prefetch is due, since what is held and can't be published fills the one that is.

        Where a consumer can only be changed while all of its prefetch is here, that is when nothing else moves.
        """
        self._for_unfit = prefetch.room_for(self._held_unfit, self._for_unfit, flowing=self._flowing)
        is_due = self._window < self.prefetch and self._for_unfit > 0
        return is_due and (not self._is_counted or self.unsettled >= self._window)

    def _count(self, now: float) -> _Progress:
        return _Progress(now, self._counts.forwarded + self.unsettled, self._counts.bytes)

    async def resize(self, wanted: int) -> None:
        """A new consumer on the same channel. A refusal of it ends the channel; nobody waits for it here, since the
        answer is read with the messages, and while the downstream takes none nothing is read."""
        out, target = self._out, self._target
        if out is None or target is None or not out.is_usable or not self._consumed or not self._consumed.done():
            return
        target.withhold()
        try:
            if not await self._has_come(out):
                return
            if wanted != self.prefetch:
                self._path.prefetch = wanted - self._for_unfit
            out.ask(methods.BASIC_CANCEL, methods.BASIC_CANCEL_OK, consumer_tag=self._tag)
            # Another tag: a quorum queue delivers what is unacknowledged once more to a consumer that it knows.
            self._consumers += 1
            self._ask_to_consume(out)
        finally:
            target.go_on()

    async def _has_come(self, out: Channel) -> bool:
        """Whether all that the consumer may have unacknowledged is here, so that nothing is on its way to it.

        What a quorum queue has sent to a consumer that is no more goes back, and comes again out of order.
        """
        if not self._is_counted:
            return True
        deadline = self._loop.time() + FULL_PATIENCE
        while not self._is_window_full:
            if self._loop.time() > deadline or not out.is_usable:
                return False
            await asyncio.sleep(BETWEEN_LOOKS)  # a hook would cost each message
        return True

    @property
    def _is_window_full(self) -> bool:
        source, target = self._source, self._target
        return source is not None and target is not None and source.last_tag - target.last_told >= self._window

    async def close(self) -> None:
        """Takes no more and waits for what is in flight."""
        out, target = self._out, self._target
        if out is None or target is None or self._consumed is None or out.closed.done():
            return
        async with asyncio.timeout(self._patience):
            if self._link.settings.ack_mode is not AckMode.NO_ACK and not self._is_midway:
                # What was not published yet needs no settling: it goes back to its queue.
                self._up.wire.divert(out.number, DiscardDeliveries(out))
            await asyncio.shield(self._consumed)  # some brokers take a cancel before that for a crime
            await out.ask(methods.BASIC_CANCEL, methods.BASIC_CANCEL_OK, consumer_tag=self._tag)
            await target.settled()

    async def leave(self) -> None:
        """Closes the channels, settled or not: what isn't acknowledged goes back to the upstream queue."""
        out = self._out
        if out is not None and not out.closed.done():
            self._up.wire.divert(out.number, DiscardDeliveries(out))
            self._give_back(out)
        if self._flows:
            self._down.wire.starved_by(self._up.wire)
            self._flows = False
            self._learn_fruits()
        for channel in self._channels:
            channel.leave()
        if self._channels:
            await asyncio.wait([channel.closed for channel in self._channels], timeout=self._patience)

    def _give_back(self, out: Channel) -> None:
        """What upstream has sent and isn't acknowledged, where that spares it being counted as a delivery that failed.

        Elsewhere closing the channel does it: older brokers put what is given back by basic.nack behind all else.
        """
        is_asked = self._consumed is not None and self._consumed.done() and out.is_usable
        if not is_asked or not self._is_counted or not self._up.server.forgives_nacks or not self.prefetch:
            return
        out.ask(methods.BASIC_CANCEL, methods.BASIC_CANCEL_OK, consumer_tag=self._tag)
        out.send(methods.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)

    def _learn_fruits(self) -> None:
        if self._counts.forwarded != self._forwarded_before:
            self._path.fruitless = 0
        elif self.unsettled:
            self._path.fruitless += 1

    @property
    def _is_dear(self) -> bool:
        """Whether each message that is given back is one step nearer to being dropped over there."""
        server = self._up.server
        return self._is_counted and server.limits_deliveries and not server.forgives_nacks

    @property
    def _is_midway(self) -> bool:
        """The downstream has the beginning of a message and waits for its rest."""
        return self._into is not None and self._into.is_midway and self._down.blocked is None

    @property
    def _channels(self) -> list[Channel]:
        return [channel for channel in (self._into, self._out) if channel is not None]

    @property
    def _patience(self) -> float:
        """A broker that takes nothing answers nothing either."""
        return SETTLE_PATIENCE if self._down.blocked is None else BLOCKED_PATIENCE

    @property
    def _tag(self) -> str:
        return names.consumer_tag(self._link.upstream, self._consumers)

    def _ask_to_consume(self, out: Channel) -> None:
        """With the prefetch that holds now; it holds for consumers that begin after it was said."""
        no_ack = self._link.settings.ack_mode is AckMode.NO_ACK
        self._window = self.prefetch
        if not no_ack:
            out.ask(methods.BASIC_QOS, methods.BASIC_QOS_OK, prefetch_count=self._window)
        asked_at = self._loop.time()
        self._consumed = out.ask(
            methods.BASIC_CONSUME,
            methods.BASIC_CONSUME_OK,
            queue=self._queue,
            consumer_tag=self._tag,
            no_ack=no_ack,
            exclusive=True,
        )
        self._consumed.add_done_callback(lambda _: self._measure(asked_at))

    def _measure(self, asked_at: float) -> None:
        self._round_trip = self._loop.time() - asked_at

    async def _begun(self) -> None:
        assert self._consumed is not None
        try:
            await asyncio.shield(self._consumed)
        except ChannelClosedError as error:
            if _is_consumed_by_another(error):
                raise ServedElsewhereError(
                    f"{self._up.where}: {self._queue!r} is consumed by another", self._queue
                ) from error
            raise refusal(self._up, f"consuming from {self._queue!r}", error) from error

    def _learn(self, closed: asyncio.Future[BrokerError]) -> None:
        """From the end of the downstream channel."""
        error = closed.result()
        largest = largest_taken(error)
        if largest is not None:
            self._path.largest = largest
            self._path.largest_until = self._loop.time() + LARGEST_IS_KNOWN
        elif blames_message(error) and self._may_have_caused_it:
            on_the_way = self._scrutiny.on_the_way if self._scrutiny else ()
            self._path.suspicion.broke(self._loop.time(), self._watch, on_the_way)

    @property
    def _may_have_caused_it(self) -> bool:
        """Whether the broker may have been reading a message of this link when it closed the connection."""
        if self._link.settings.ack_mode is not AckMode.ON_CONFIRM:
            return self._counts.forwarded != self._forwarded_before
        return self.in_flight > 0 or (self._into is not None and self._into.is_midway)

    def _tell_cancelled(self, _: str) -> None:
        if not self._cancelled.done():
            self._cancelled.set_result(TransientError(f"{self._up.where}: queue {self._queue!r} was deleted"))


def _is_consumed_by_another(error: ChannelClosedError) -> bool:
    return error.code == ACCESS_REFUSED and "exclusive" in str(error)
