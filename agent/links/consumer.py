"""The consumer of a flow's channel: begun, replaced by one with another prefetch, paused, and ended.

Why: docs/decisions/0009-prefetch-by-new-consumer.md, docs/decisions/0010-pause-cancels-consumer.md
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.data.splice import DeliveryForwarder, PublishTracker
from agent.amqp.rpc import refusal
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.refusal_texts import is_consumed_by_another, is_stream_refusing_priority
from agent.amqp.wire.tables import CodecError
from agent.core.rules import names
from agent.errors import AgentError, BrokerError, PermanentError
from agent.links.flow_options import FlowOptions
from agent.links.read_limits import Window

FULL_PATIENCE: Final = 1.0
BETWEEN_LOOKS: Final = 0.005


class ServedElsewhereError(AgentError):
    """Another consumer has the link's queue: the native plugin, or another agent."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class Consumer:
    """The consumer of one flow; at most one exists at a time. Each has another tag, since a quorum queue delivers what
    is unacknowledged once more to a consumer that it knows.

    What is wanted may change at any moment, also while the broker owes an answer; the broker is then asked for it as
    soon as possible. On a channel that is closed nothing happens: the flow ends by that.
    """

    __slots__ = (
        "_cancelled", "_consumed", "_is_paused", "_loop", "_number", "_options", "_out", "_source", "_tag", "_target",
        "_up", "_window",
    )  # fmt: skip

    def __init__(
        self,
        options: FlowOptions,
        window: Window,
        *,
        up: Connection,
        out: Channel,
        source: DeliveryForwarder,
        target: PublishTracker,
    ) -> None:
        self._options = options
        self._window = window
        self._up = up
        self._out = out
        self._source = source
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._is_paused = False
        self._number = 0
        self._tag: str | None = None  # of the consumer that was asked for, until its end is asked for
        self._consumed: asyncio.Future[Call] | None = None
        self._cancelled: asyncio.Future[Call] | None = None

    @property
    def is_consuming(self) -> bool:
        """True if there is a consumer that the broker has confirmed."""
        return self._tag is not None and self._consumed is not None and self._consumed.done() and self._out.is_usable

    async def begin(self) -> None:
        """Begin to consume, and return when the broker has confirmed it; asking again while there is a consumer does
        nothing."""
        self._is_paused = False
        self.step()
        await self._begun()

    async def pause(self) -> None:
        """End the consumer, and return when nothing more comes; what has come, and what comes until then, is
        forwarded."""
        self._is_paused = True
        self.step()
        while self._is_paused and self._out.is_usable and (owed := self._owed) is not None:
            await asyncio.wait([owed])

    def step(self) -> None:
        """Ask the broker for what is wanted now: a consumer, or none."""
        if not self._out.is_usable:
            return
        is_wanted = not self._is_paused and not self._source.is_exhausted
        if is_wanted and self._tag is None:
            self._consume()
        elif not is_wanted and self.is_consuming:  # some brokers take a cancel before their answer for an error
            self._cancel()

    async def resize(self, wanted: int) -> None:
        """Replace the consumer by one with another prefetch on the same channel, unless messages on their way prevent
        it. A refusal ends the channel; it isn't waited for here, since the answer is read with the messages, and while
        the downstream takes none nothing is read."""
        if not self.is_consuming:
            return
        self._target.withhold()
        try:
            if not await self._has_come():
                return
            self._window.learn(wanted)
            if self.is_consuming:  # still
                self._cancel()
                self.step()
        finally:
            self._target.go_on()

    def give_back(self) -> None:
        """Return what upstream has sent and isn't acknowledged, if upstream doesn't count that as a failed delivery.

        Otherwise closing the channel returns it: older brokers put what is returned by basic.nack behind all else.
        """
        self._is_paused = True
        is_asked = self._consumed is not None and self._consumed.done() and self._out.is_usable
        is_spared = self._options.is_quorum and self._options.acknowledges and self._up.server.forgives_nacks
        if is_asked and is_spared:
            with suppress(BrokerError):  # this very write may find that the connection may not be used any more
                self.step()
                self._out.send(methods.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)

    @property
    def _owed(self) -> asyncio.Future[Call] | None:
        """The answer that the broker owes, if any."""
        pending = (each for each in (self._consumed, self._cancelled) if each is not None and not each.done())
        return next(pending, None)

    async def _has_come(self) -> bool:
        """Wait until all that the consumer may have unacknowledged is here, so that nothing is on its way to it; return
        False if that takes too long.

        What a quorum queue has sent to a consumer that is gone goes back, and comes again out of order. While
        acknowledgements are withheld, what has come fills the prefetch; those that were sent before, singly past a
        message that stays, made room for others.
        """
        if not self._options.is_quorum:
            return True
        deadline = self._loop.time() + FULL_PATIENCE
        while self._target.confirms.outstanding < self._window.current:
            if self._loop.time() > deadline or not self.is_consuming:
                return False
            await asyncio.sleep(BETWEEN_LOOKS)  # a hook would cost each message
        return True

    def _cancel(self) -> None:
        self._cancelled = self._out.ask(methods.BASIC_CANCEL, consumer_tag=self._tag)
        self._tag = None

    def _consume(self) -> None:
        """Begin a consumer with the current prefetch, which applies to consumers that begin after it was set."""
        window, options = self._window, self._options
        window.begin()
        self._number += 1
        self._tag = names.numbered(options.tag, self._number)
        if options.acknowledges:
            self._out.ask(methods.BASIC_QOS, prefetch_count=window.current)
        asked_at = self._loop.time()
        self._consumed = self._out.ask(
            methods.BASIC_CONSUME,
            queue=options.queue,
            consumer_tag=self._tag,
            no_ack=not options.acknowledges,
            exclusive=options.exclusive,
            arguments=options.arguments,
        )
        self._consumed.add_done_callback(lambda _: self._answered(asked_at))

    def _answered(self, asked_at: float) -> None:
        self._window.round_trip = self._loop.time() - asked_at
        self.step()

    async def _begun(self) -> None:
        if self._consumed is None:
            return
        try:
            await asyncio.shield(self._consumed)
        except ChannelClosedError as error:
            queue = self._options.queue
            if is_consumed_by_another(error.code, error.what):
                raise ServedElsewhereError(f"{self._up.where}: {queue!r} is consumed by another", queue) from error
            if is_stream_refusing_priority(error.code, error.what):
                raise PermanentError(
                    f"{queue!r} is a stream, which takes no x-priority, and nothing of which is ever taken away: copy "
                    "it by a shovel with x-stream-offset in src-consumer-args",
                    where=self._up.where,
                ) from error
            raise refusal(self._up, f"consuming from {queue!r}", error) from error


class DiscardDeliveries:
    """Drops a channel's deliveries, and nothing else: they go back to their queue when it closes."""

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
