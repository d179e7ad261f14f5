"""One link's messages: the two channels they travel on, from their opening to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.data.held import HeldBuffers
from agent.amqp.data.move_tracker import MoveTracker
from agent.amqp.data.poison_check import PoisonCheck
from agent.amqp.data.probe import Probes
from agent.amqp.data.quarantined import Capture, Room
from agent.amqp.data.rewriting import Chooser, Rewriter, with_rules
from agent.amqp.data.splice import Counts, DeliveryForwarder, PublishTracker
from agent.amqp.data.stream_reader import StreamReader
from agent.amqp.failures import ACCESS_REFUSED, blames_message
from agent.amqp.rpc import refused_while
from agent.amqp.wire import methods
from agent.amqp.wire.channel import REPLY_SUCCESS, Channel, ChannelClosedError
from agent.amqp.wire.refusal_texts import is_consumed_by_another, largest_taken
from agent.core.links import read_limits
from agent.core.links.poison_search import Watch
from agent.core.links.read_limits import RateLimit
from agent.core.model import AckMode
from agent.errors import BrokerError, PermanentError, Side, TransientError, happening_on
from agent.links.consumer import Consumer, DiscardDeliveries
from agent.links.flow_options import FlowOptions, PathMemory
from agent.links.read_limits import Throttle, Window

SETTLE_PATIENCE: Final = 5.0
BLOCKED_PATIENCE: Final = 1.0
LARGEST_IS_KNOWN: Final = 600.0
BETWEEN_QUESTIONS: Final = 0.01
FEWER: Final = 4


class Flow:
    """The messages of one session. `start` comes first, then `close` and `leave`; only `leave` never raises
    BrokerError."""

    __slots__ = (  # a dict of so many would take 1.5 KB a link
        "_broken", "_cancelled", "_capture", "_consumer", "_counts", "_down", "_flows", "_forgets",
        "_forwarded_before", "_has_taken_all", "_into", "_is_unkept", "_loop", "_made_capture", "_options", "_out",
        "_path", "_poison_check", "_room", "_source", "_target", "_throttle", "_up", "_watch", "_window",
        "acknowledged_for_sure", "idle", "lag", "last_probe", "on_stay", "probes", "unproved", "unproved_by",
    )  # fmt: skip

    def __init__(
        self,
        options: FlowOptions,
        *,
        up: Connection,
        down: Connection,
        counts: Counts,
        path: PathMemory,
        room: Room,
        capture: Callable[[PublishTracker], Capture] | None = None,
    ) -> None:
        """`capture` creates the collector of messages for the quarantine. In `room` messages are kept until they are
        confirmed, so that those that are refused needn't go back to their source."""
        self._options = options
        self._up = up
        self._down = down
        self._counts = counts
        self._path = path
        self.probes: Probes | None = None  # to be set before `start`
        self.on_stay: Callable[[], None] | None = None  # the same; called with `keeps_back` for each that stays
        self._made_capture = capture
        self._room = room
        self._capture: Capture | None = None
        self._loop = asyncio.get_running_loop()
        self.idle = ""  # why nothing is taken, where that is as it should be
        self.unproved = ""  # why it isn't known whether messages would get through, where that is looked for
        self.unproved_by = Side.DOWNSTREAM  # where the reason is
        self.lag: float | None = None  # seconds that the last probe took
        self.last_probe: float | None = None  # when it arrived, in seconds since 1970
        self.acknowledged_for_sure = 0  # of `acknowledged`, what the source is known to have read
        self._into: Channel | None = None
        self._out: Channel | None = None
        self._target: PublishTracker | None = None
        self._source: DeliveryForwarder | None = None
        self._consumer: Consumer | None = None
        self._flows = False
        self._forgets: asyncio.TimerHandle | None = None
        self._cancelled: asyncio.Future[BrokerError] = self._loop.create_future()
        self._broken: asyncio.Future[BrokerError] = self._loop.create_future()
        self._forwarded_before = counts.forwarded
        self._watch = path.poison_search.watch(self._loop.time())
        for_unpublishable = path.poison_search.culprits(self._loop.time()) if self.is_watched else 0
        self._window = Window(options, path, counts, self._loop.time, for_unpublishable=for_unpublishable)
        self._throttle = Throttle(
            up.wire.inbound,
            options.rate_limit,
            counts,
            acknowledges=options.acknowledges,
            former=path.buckets,
        )
        path.buckets = self._throttle.buckets if options.rate_limit is not None else None
        self._poison_check: PoisonCheck | None = None
        self._has_taken_all: asyncio.Future[None] = self._loop.create_future()  # that it may take
        self._is_unkept = False

    @property
    def prefetch(self) -> int:
        """The number of messages that the broker may send ahead; 0 if nothing is acknowledged."""
        return self._window.prefetch

    @property
    def is_consuming(self) -> bool:
        return self._consumer is not None and self._consumer.is_consuming

    @property
    def is_watched(self) -> bool:
        """True if the link was suspected when the flow was created, so that its messages are checked."""
        return self._watch is not Watch.OFF

    @property
    def trouble(self) -> str:
        """The text for operators about messages that don't get through; empty if all do."""
        trouble = self._target.trouble if self._target else ""
        if trouble and self._window.is_filled:
            trouble += f"; they take all {self._window.current:,} places of the prefetch, so what follows them waits"
        return trouble

    @property
    def is_refused(self) -> bool:
        """True if messages wait since the downstream refused them."""
        return self._target is not None and self._target.refused.count > 0

    @property
    def held_at(self) -> Side:
        """The side at which messages don't get through: the quarantine is beside the source."""
        lacks_quarantine = self._target is not None and self._target.lacks_quarantine
        return Side.UPSTREAM if lacks_quarantine else Side.DOWNSTREAM

    @property
    def limited_by(self) -> str:
        """The rate limit as text, while it holds messages back; otherwise empty."""
        return self._throttle.shown

    @property
    def limited_for(self) -> float:
        """The seconds since the rate limit began to keep the flow from reading; 0 if it doesn't now."""
        return self._throttle.held_for

    @property
    def waits_for_limit(self) -> bool:
        """True if nothing is to be confirmed, since the rate limit keeps the flow from reading."""
        return self._throttle.is_held and not self.unsettled

    def limit(self, limit: RateLimit | None) -> None:
        """Change the rate limit. A flow that began without one shares its connection, and holds nobody up: its link is
        started again."""
        if self._options.rate_limit is None:
            return
        self._window.limit = limit
        self._throttle.change(limit)
        if self._source is not None:
            self._source.on_published = None if limit is None else self._throttle.took

    @property
    def in_flight(self) -> int:
        return self._target.confirms.in_flight if self._target else 0

    @property
    def unsettled(self) -> int:
        """The number of messages that upstream has delivered and that are not settled."""
        return self._window.unsettled

    @property
    def kept_back(self) -> tuple[int, int]:
        """The number of messages that stay, and the bytes of their bodies; with `keeps_back`."""
        target = self._target
        return (target.confirms.held, target.held_bytes) if isinstance(target, MoveTracker) else (0, 0)

    @property
    def settled_up_to(self) -> int:
        """The delivery up to which each is settled."""
        return self._target.settled_up_to if self._target else 0

    @property
    def unread(self) -> int:
        """The number of messages that upstream has delivered, and that wait here until the downstream takes some
        again."""
        if self._source is None or self._out is None:
            return 0
        return self._up.wire.inbound.unread_deliveries(self._out.number) + self._source.is_receiving

    @property
    def counts_all(self) -> bool:
        """True if no message that has come here is uncounted."""
        return self._up.wire.inbound.counts_all

    @property
    def unaccounted(self) -> int:
        """The number of messages that are counted as taken and not yet as anything else."""
        return self._target.unsettled if self._target else 0

    @property
    def forwarded(self) -> int:
        """The number of messages that were forwarded since the flow began, or went to the quarantine instead."""
        aside = self._target.quarantined if self._target else 0
        return self._counts.forwarded - self._forwarded_before + aside

    @property
    def acknowledged(self) -> int:
        """The number of messages that were acknowledged to the source since the flow began."""
        return self.forwarded - self._target.confirms.unacknowledged if self._target else 0

    async def follow_acknowledged(self) -> None:
        """Keep `acknowledged_for_sure` up to date until cancelled. A broker handles what comes by a channel in order,
        so the answer to a request shows that it has read all acknowledgements before that."""
        while True:
            await asyncio.sleep(BETWEEN_QUESTIONS)
            sent, out = self.acknowledged, self._out
            if out is None or not out.is_usable or sent == self.acknowledged_for_sure:
                continue
            with suppress(BrokerError):  # the channel's end ends the flow
                # Sets what is set already; most other questions would change something.
                await out.ask_soon(methods.BASIC_QOS, prefetch_count=self._window.current)
                self.acknowledged_for_sure = sent

    @property
    def source_has_read_all(self) -> bool:
        """True if the source closed its channel as it was asked to, and so has read every acknowledgement before."""
        closed = self._out.closed if self._out else None
        if closed is None or not closed.done():
            return False
        error = closed.result()
        return isinstance(error, ChannelClosedError) and error.code == REPLY_SUCCESS

    @property
    def unapplied(self) -> tuple[str, ...]:
        """The arguments of the consumer that the source says it doesn't apply."""
        return self._out.unapplied if self._out else ()

    @property
    def remaining(self) -> int | None:
        """The number of messages until the flow has finished; None if nothing limits them."""
        return None if self._options.limit is None else max(0, self._options.limit - self.forwarded)

    @property
    def oldest_unconfirmed(self) -> float | None:
        """The time when the oldest message in flight was read, by the loop's clock; None if there is none."""
        return self._target.oldest_unconfirmed if self._target else None

    @property
    def oldest_refused(self) -> float | None:
        """The time when the oldest message that waits after a refusal by the downstream was first refused; None if
        there is none."""
        return self._target.refused.oldest if self._target else None

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        """The futures of which any that is done breaks the link; its result is the error."""
        return [self._cancelled, self._broken, *(channel.closed for channel in self._channels)]

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """The error that broke the link, with its side."""
        error = end.result()
        if end is self._broken:
            return error
        is_downstream = self._into is not None and end is self._into.closed
        connection, side = (self._down, Side.DOWNSTREAM) if is_downstream else (self._up, Side.UPSTREAM)
        if not isinstance(error, ChannelClosedError):
            error.side = error.side or side
            return error
        may_pass = is_consumed_by_another(error.code, error.what) or blames_message(error)
        kind = PermanentError if error.code == ACCESS_REFUSED and not may_pass else TransientError
        return kind(error.what, where=connection.where, side=side, cause=error)

    async def start(self, rewriter: Rewriter, *, paused: bool = False, chooser: Chooser | None = None) -> None:
        """Open the channels, and begin the consumer, unless it is `paused` from the start. A `chooser` needs a
        destination that keeps the addresses of deliveries."""
        with happening_on(Side.DOWNSTREAM):
            into = self._into = self._down.wire.reserve_channel()
        out = self._out = self._up.wire.begin_channel()
        if self._opens_first:
            await self._open(into)
        out.on_cancel = self._end_cancelled
        into.losses = out.losses = self._counts.converted_with_loss
        target = self._target = self._window.target = self._made_target(into)
        into.closed.add_done_callback(self._learn)
        if self.is_watched:
            self._poison_check = PoisonCheck(
                self._path.poison_search, self._loop.time, lambda: target.confirms.unconfirmed
            )
        self._capture = self._made_capture(target) if self._made_capture else None
        target.refused.hand_over = self._capture.take if self._capture else None
        target.refused.counts_returns = self._counts_returns
        source = self._source = DeliveryForwarder(
            out,
            target,
            with_rules(rewriter, self._options.set_headers, self._options.remove_headers),
            self._options.destination,
            poison_check=self._poison_check,
            limit=self._options.limit,
            capture=self._capture,
            keeps_returned=self._counts_returns and self._path.fruitless >= read_limits.FRUITLESS,
            chooser=chooser,
        )
        target.refused.on_counted_return = source.keep_returned
        consumer = self._consumer = Consumer(
            self._options, self._window, up=self._up, out=out, source=source, target=target
        )
        source.probes = self.probes
        source.on_exhausted = self._note_all_taken
        self.limit(self._window.limit)
        if self._options.limit is not None and not self._options.keeps_back:
            target.on_held = self._take_more
        if self._options.ends_on_return:
            target.on_returned = self._end_returned
        self._down.wire.inbound.divert(into.number, target)
        offsets = self._options.offsets
        reader = source if offsets is None else StreamReader(out.number, source, offsets)
        self._up.wire.inbound.divert(out.number, reader)
        self._down.wire.fed_by(self._up.wire)
        self._flows = True
        if target.largest is not None:
            self._forgets = self._loop.call_at(self._path.largest_until, source.forget_largest)
        await (consumer.pause() if paused else consumer.begin())

    def _made_target(self, into: Channel) -> PublishTracker:
        path = self._path
        target = (MoveTracker if self._options.keeps_back else PublishTracker)(
            into,
            self._down.wire,
            self._counts,
            ack_mode=self._options.ack_mode,
            settle=self._up.wire.write_soon,
            largest=path.largest_at(self._down.uri.safe, self._loop.time()),
            held=HeldBuffers(read_limits.BYTES_ON_THE_WAY, self._room),
            returns_are_counted=self._returns_are_counted,
            give_up_after=self._options.quarantine_after,
            instead_of_return=self._end_unkept if self._options.is_stream else None,
        )
        if isinstance(target, MoveTracker):
            target.on_stay, target.on_doubt = self.on_stay, self._end_in_doubt
        return target

    # While it runs

    @property
    def _opens_first(self) -> bool:
        """False if the destination's channel can be opened with the first message: of thousands of links most carry
        none, and a broker with the HTTP API looks at every channel each few seconds.

        If the broker refuses it, all that was taken has to go back. So nothing is taken before it is open if it was
        acknowledged by then, if what goes back may be dropped for that, or if nothing may be published now. Why:
        docs/decisions/0069-destination-channel-opens-late.md
        """
        options, path = self._options, self._path
        is_unsafe = options.ack_mode is not AckMode.ON_CONFIRM or path.fruitless > 0
        return options.opens_first or is_unsafe or self._down.blocked is not None

    async def _open(self, into: Channel) -> None:
        with happening_on(Side.DOWNSTREAM), refused_while(self._down, "asking for confirms"):
            into.open()
            await into.ask(methods.CONFIRM_SELECT)

    def better_prefetch(self, now: float) -> int | None:
        """The prefetch to change to, if another suits what went through since the last call; None otherwise. Call it
        about once a second."""
        wanted = self._window.better(now)
        return wanted if self.is_consuming else None

    async def resize(self, wanted: int) -> None:
        """Change the prefetch, by a new consumer on the same channel; the broker's answer isn't waited for."""
        if self._consumer is not None:
            await self._consumer.resize(wanted)

    async def pause_consuming(self) -> None:
        """Pause the consumer, and return when upstream sends nothing more. What has come is forwarded and settled, in
        every ack mode.

        The channels stay. Nothing happens if the flow is paused already, or at its end.
        """
        if self._consumer is not None:
            await self._consumer.pause()
        if self._target is not None:
            self._target.refused.return_unacknowledged()

    async def resume_consuming(self) -> None:
        """Resume, and return when the broker has confirmed the new consumer; raise BrokerError or ServedElsewhereError
        if it refuses.

        Nothing happens if the flow isn't paused, or is at its end.
        """
        if self._consumer is not None:
            await self._consumer.begin()

    async def finished(self) -> None:
        """Return once as many messages as the limit allows are forwarded, and all of them are settled.

        What the downstream refuses or can't take doesn't count: others are taken in its place. It goes back, as what
        came beyond the limit does, at the latest with `leave`.
        """
        while True:
            await asyncio.shield(self._has_taken_all)
            if self._target is not None:
                await self._target.all_settled()
            if self._has_taken_all.done():
                return

    def _note_all_taken(self) -> None:
        if not self._has_taken_all.done():
            self._has_taken_all.set_result(None)
        if self._consumer is not None:
            self._consumer.step()

    def _take_more(self, count: int) -> None:
        """Take so many messages more: as many didn't get through."""
        if self._source is not None and self._consumer is not None:
            self._source.allow(count)
            if self._has_taken_all.done():
                self._has_taken_all = self._loop.create_future()
            self._consumer.step()

    def take_no_more(self) -> None:
        """Forward nothing more than what has come, and finish."""
        if self._source is not None:
            self._source.take_no_more()
            if not self._source.is_receiving:
                self._note_all_taken()

    # Its end

    async def close(self) -> None:
        """Take no more messages, and wait for those in flight."""
        self._throttle.end()
        out, target, consumer = self._out, self._target, self._consumer
        if out is None or target is None or consumer is None or out.closed.done():
            return
        async with asyncio.timeout(self._patience):
            if self._options.acknowledges and not self._is_midway:
                # What was not published yet needs no settling: it goes back to its queue.
                self._up.wire.inbound.divert(out.number, DiscardDeliveries(out))
            await consumer.pause()
            await target.settled()

    async def leave(self) -> None:
        """Close the channels, settled or not: what isn't acknowledged goes back to the upstream queue."""
        self._throttle.end()
        if self._forgets is not None:
            self._forgets.cancel()
        out = self._out
        if out is not None and not out.closed.done():
            self._up.wire.inbound.divert(out.number, DiscardDeliveries(out))
            await self._finish_quarantine()
            if self._consumer is not None:
                self._consumer.give_back()
        if self._capture is not None:
            self._capture.abandon()
        if self._target is not None:
            self._target.refused.release()
        if self._flows:
            self._down.wire.starved_by(self._up.wire)
            self._flows = False
            self._note_fruitless()
        for channel in self._channels:
            channel.leave()
        if self._channels:
            await asyncio.wait([channel.closed for channel in self._channels], timeout=self._patience)
        if self._target is not None:
            self._target.abandon()
        self._let_go()

    def _let_go(self) -> None:
        """Leave no cycle: where thousands of sessions end at once, one turn of the loop would collect them all."""
        if self._out is not None:
            self._out.on_cancel = None
        if self._source is not None:
            self._source.on_exhausted = None
        if self._target is not None:
            self._target.let_go()

    async def _finish_quarantine(self) -> None:
        """Wait until what is on its way to the quarantine is there and acknowledged; otherwise it would come again and
        go there twice."""
        if self._target is not None and self._options.acknowledges:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_PATIENCE):
                    await self._target.quarantine_settled()

    def _note_fruitless(self) -> None:
        if not self._is_unkept:
            self._path.most_kept = read_limits.LARGEST_PREFETCH
        if self._window.has_forwarded:
            self._path.fruitless = 0
        elif self.unsettled:
            self._path.fruitless += 1

    @property
    def _returns_are_counted(self) -> bool:
        """True if each message that is given back is one step nearer to being dropped upstream."""
        return self._counts_returns and not self._up.server.forgives_nacks

    @property
    def _counts_returns(self) -> bool:
        """True if upstream drops a message that is returned too often, by whatever means."""
        return self._options.is_quorum and self._up.server.limits_deliveries

    @property
    def _is_midway(self) -> bool:
        """True if the downstream has the beginning of a message and waits for its rest."""
        return self._into is not None and self._into.is_midway and self._down.blocked is None

    @property
    def _channels(self) -> list[Channel]:
        return [channel for channel in (self._into, self._out) if channel is not None]

    @property
    def _patience(self) -> float:
        """The seconds to wait for an answer at the end: fewer if the downstream is blocked, as it answers nothing
        either."""
        return SETTLE_PATIENCE if self._down.blocked is None else BLOCKED_PATIENCE

    def _learn(self, closed: asyncio.Future[BrokerError]) -> None:
        """Remember what the end of the downstream channel shows."""
        error = closed.result()
        largest = largest_taken(error.what) if isinstance(error, ChannelClosedError) else None
        if largest is not None:
            self._path.learn_largest(largest, self._down.uri.safe, until=self._loop.time() + LARGEST_IS_KNOWN)
        elif blames_message(error) and self._may_have_caused(error):
            check = self._poison_check
            on_the_way = check.on_the_way if check else []
            if check and not on_the_way and self.is_refused:  # by AMQP 1.0 RabbitMQ gives back the one that it blames
                on_the_way = check.last
            self._path.poison_search.broke(self._loop.time(), self._watch, on_the_way)
        elif not isinstance(error, ChannelClosedError):
            self._path.largest = None  # the next connection may take more

    def _may_have_caused(self, error: BrokerError) -> bool:
        """True if the broker may have been reading a message of this link when it closed the connection or channel, or
        has refused one before that."""
        if self._options.ack_mode is not AckMode.ON_CONFIRM:
            return self._window.has_forwarded
        if isinstance(error, ChannelClosedError) and self.is_refused:
            return True
        return self.in_flight > 0 or (self._into is not None and self._into.is_midway)

    def _end_returned(self) -> None:
        """End the flow because a message was returned. Nothing is acknowledged from now on, so it stays at the source
        and comes again."""
        if self._target is not None:
            self._target.cut_off()
        queue = self._options.destination.routing_key
        self._end_broken(f"queue {queue!r} was deleted, and its messages were returned")

    def _end_unkept(self) -> None:
        """End the flow because messages have to go back to a stream, which takes none back: the next session reads them
        again, and what others took meanwhile. So it reads fewer at a time, until all that are refused can be kept."""
        self._is_unkept = True
        self._path.most_kept = max(1, self._window.current // FEWER)
        self._end_broken(
            f"messages wait that it doesn't take, and there is no room to keep them: stream {self._options.queue!r} "
            "is read again from the first of them"
        )

    def _end_broken(self, why: str) -> None:
        if not self._broken.done():
            self._broken.set_result(TransientError(why, where=self._down.where, side=Side.DOWNSTREAM))

    def _end_in_doubt(self) -> None:
        """End the flow because a message was returned that can't be distinguished from others; all of them stay."""
        self._end_broken("it returned a message, and it can't be known which")

    def _end_cancelled(self, _: str) -> None:
        if not self._cancelled.done():
            what = f"queue {self._options.queue!r} was deleted"
            self._cancelled.set_result(TransientError(what, where=self._up.where))
