"""One exchange link while it runs: what it built upstream, and the channels that messages travel on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from agent.amqp import upstream
from agent.amqp.connect import Connection
from agent.amqp.failures import ACCESS_REFUSED, one_line
from agent.amqp.stamp import Stamp
from agent.amqp.upstream import Binder
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.amqp.wire.methods import Call
from agent.amqp.wire.splice import Counts, Source, Target
from agent.amqp.wire.target import largest_taken
from agent.core import fields, names
from agent.core.bindings import Group, Route, difference
from agent.core.hops import Site
from agent.core.model import AckMode, Binding, Exchange, Link
from agent.core.objects import internal_arguments
from agent.core.plan import link_groups, upstream_queue_name
from agent.errors import AgentError, BrokerError, TransientError

AUTO_PREFETCH: Final = 5_000
SETTLE_PATIENCE: Final = 5.0
BLOCKED_PATIENCE: Final = 1.0
LARGEST_IS_KNOWN: Final = 600.0

DeclareInternal = Callable[[str, fields.Table], Awaitable[None]]


class ServedElsewhereError(AgentError):
    """Somebody else consumes from the upstream queue: the native plugin, or another agent."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class Deaf:
    """Lets a channel's messages fall, and nothing else: they go back to their queue when it closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def take(self, buffer: bytearray, at: int, end: int) -> int:  # noqa: ARG002 - one frame at a time will do
        kind, _, size = frames.PREFIX.unpack_from(buffer, at)
        after: int = at + frames.OVERHEAD + size
        payload = bytes(buffer[at + 7 : after - 1])
        if kind == frames.METHOD and not methods.decode(payload).method.content:
            self._channel.received(kind, payload)
        return after


@dataclass
class Memory:
    """What a link knows of its upstream from one session to the next."""

    letter: str | None = None
    bound: frozenset[Group] = frozenset()
    note: str = ""
    largest: int | None = None  # what the downstream takes of a body, as it said when it refused one
    largest_until: float = 0.0  # it may be configured to take more meanwhile


class ExchangeSession:
    """Builds, runs and ends; every method but `leave` may raise BrokerError, and `leave` always comes last."""

    def __init__(
        self,
        link: Link,
        exchange: Exchange,
        *,
        up: Connection,
        down: Connection,
        cluster: str,
        counts: Counts,
        memory: Memory,
        declare_internal: DeclareInternal,
    ) -> None:
        self.link = link
        self._exchange = exchange
        self._up = up
        self._down = down
        self._counts = counts
        self._memory = memory
        self._declare_internal = declare_internal
        self._upstream = Site(up.server.cluster_name, up.vhost)
        self._downstream = Site(cluster, link.vhost)
        self.queue = upstream_queue_name(link, up.vhost, cluster)
        self._route = Route(self._upstream, self._downstream, link.name, link.settings.max_hops)
        self._binder: Binder | None = None
        self._channels: list[Channel] = []
        self._cancelled: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self._slice = 0
        self._target: Target | None = None
        self._source_channel: Channel | None = None
        self._flows = False

    @property
    def upstream_cluster(self) -> str | None:
        return self._upstream.cluster

    @property
    def prefetch(self) -> int:
        """How many messages the broker may send ahead; none is counted where nothing is acknowledged."""
        settings = self.link.settings
        return 0 if settings.ack_mode is AckMode.NO_ACK else settings.prefetch_count or AUTO_PREFETCH

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

    def look_upstream(self, tell: Callable[[int], None]) -> None:
        """Asks how many messages are ready there; where that can't be told, the link's end will say why."""

        def answered(answer: asyncio.Future[Call]) -> None:
            if not answer.cancelled() and answer.exception() is None:
                tell(answer.result()["messages"])

        if self._binder is not None:
            with suppress(BrokerError):
                self._binder.depth(self.queue).add_done_callback(answered)

    async def open(self, bindings: Iterable[Binding]) -> None:
        """Everything upstream first, the consumer last: nothing flows before all of it stands."""
        link = self.link
        if await upstream.ensure_exchange(self._up, link.remote_name, self._exchange):
            self._memory.letter = None  # a new exchange has forgotten what was bound to the old one
        consumers, self._memory.note = await upstream.ensure_queue(self._up, self.queue, link.settings)
        if consumers:
            raise ServedElsewhereError(
                f"{self._up.where}: {self.queue!r} has {consumers} consumer(s) already", self.queue
            )
        if not await self._resumed(bindings):
            await self._rebuild(bindings)
        await self._start_flow()

    async def follow(self, bindings: Iterable[Binding]) -> None:
        """Brings the bindings upstream in step; only what differs is sent."""
        memory, letter = self._memory, self._memory.letter
        if self._binder is None or letter is None:
            return
        wanted = self._groups(bindings, letter)
        change = difference(bound=memory.bound, wanted=wanted)
        memory.letter = None  # until it is through, nobody knows what is bound
        await self._binder.bind(change.bind)
        await self._binder.unbind(change.unbind)
        memory.letter, memory.bound = letter, wanted

    async def assert_bindings(self, slices: int) -> None:
        """Binds again one part of what should be bound: an upstream exchange that was made anew has forgotten it.

        AMQP doesn't tell a new exchange from the old one of its name. That it is missing right now, it does.
        """
        if self._binder is None:
            return
        bound = tuple(self._memory.bound)
        if await self._binder.source_stands():
            self._slice = (self._slice + 1) % slices
            await self._binder.bind(bound[self._slice :: slices])
        else:
            await upstream.ensure_exchange(self._up, self.link.remote_name, self._exchange)
            await self._binder.bind(bound)

    async def close(self) -> None:
        """Takes no more and waits for what is in flight."""
        source, target = self._source_channel, self._target
        if source is None or target is None or source.closed.done():
            return
        async with asyncio.timeout(self._patience):
            if self._down.blocked is not None:  # what came now would only be in flight as well
                self._up.wire.divert(source.number, Deaf(source))
            await source.ask(methods.BASIC_CANCEL, methods.BASIC_CANCEL_OK, consumer_tag=self._tag)
            await target.settled()

    async def leave(self) -> None:
        """Closes the channels, settled or not: what isn't acknowledged goes back to the upstream queue."""
        source = self._source_channel
        if source is not None and not source.closed.done():
            self._up.wire.divert(source.number, Deaf(source))
        if self._flows:
            self._down.wire.starved_by(self._up.wire)
            self._flows = False
        if self._binder is not None:
            self._binder.close()
        for channel in self._channels:
            upstream.leave(channel)
        if self._channels:
            await asyncio.wait([channel.closed for channel in self._channels], timeout=self._patience)

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        """What breaks the link when it is done."""
        return [self._cancelled, *(channel.closed for channel in self._channels)]

    def explain(self, end: asyncio.Future[BrokerError]) -> str:
        """Why the link broke, with the side; a connection's end tells that by itself."""
        error = end.result()
        if not isinstance(error, ChannelClosedError):
            return str(error)
        side = self._down if self._channels and end is self._channels[0].closed else self._up
        return f"{side.where}: {one_line(str(error))}"

    @property
    def _patience(self) -> float:
        """A broker that takes nothing answers nothing either."""
        return SETTLE_PATIENCE if self._down.blocked is None else BLOCKED_PATIENCE

    @property
    def _tag(self) -> str:
        return names.consumer_tag(self.link.upstream)[:255]

    def _groups(self, bindings: Iterable[Binding], letter: str) -> frozenset[Group]:
        return link_groups(self.link, self._exchange, self._route, bindings, letter)

    async def _resumed(self, bindings: Iterable[Binding]) -> bool:
        """Whether all that was built still stands, so that the difference is enough."""
        if self._memory.letter is None:
            return False
        name = names.internal_exchange(self.queue, self._memory.letter)
        if not await upstream.stands(self._up, name):
            return False
        try:
            await self._declare_internal(name, self._internal_arguments)
        except BrokerError:
            if self._up.is_closed:
                raise
            return False  # it stands, but its type is known no more: the plugin was disabled
        await upstream.bind_queue(self._up, self.queue, name)
        self._binder = Binder(self._up, self.link.remote_name, name)
        await self.follow(bindings)
        return True

    @property
    def _internal_arguments(self) -> fields.Table:
        return internal_arguments(self.link.settings.max_hops, self._downstream)

    async def _rebuild(self, bindings: Iterable[Binding]) -> None:
        """Makes the other internal exchange, binds everything to it, and only then deletes the old one."""
        old = self._memory.letter or await self._standing_letter()
        letter = names.other_letter(old) if old else names.LETTERS[0]
        self._memory.letter, self._memory.bound = None, frozenset()
        name = names.internal_exchange(self.queue, letter)
        await upstream.delete_exchange(self._up, name)
        await self._declare_internal(name, self._internal_arguments)
        await upstream.bind_queue(self._up, self.queue, name)
        self._binder = Binder(self._up, self.link.remote_name, name)
        groups = self._groups(bindings, letter)
        await self._binder.bind(groups)
        self._memory.letter, self._memory.bound = letter, groups
        if old:
            await upstream.delete_exchange(self._up, names.internal_exchange(self.queue, old))

    async def _standing_letter(self) -> str | None:
        for letter in names.LETTERS:
            if await upstream.stands(self._up, names.internal_exchange(self.queue, letter)):
                return letter
        return None

    async def _start_flow(self) -> None:
        settings = self.link.settings
        loop = asyncio.get_running_loop()
        into = await self._down.channel()
        out = await self._up.channel()
        self._channels = [into, out]
        await into.ask(methods.CONFIRM_SELECT, methods.CONFIRM_SELECT_OK)
        out.on_cancel = self._tell_cancelled
        target = Target(
            into,
            self._down.wire,
            self._counts,
            ack_mode=settings.ack_mode,
            settle=self._up.wire.write_soon,
            largest=self._memory.largest if loop.time() < self._memory.largest_until else None,
        )
        into.closed.add_done_callback(self._learn)
        stamp = Stamp(
            str(self.link.uris[0]),
            self.link.name,
            upstream=self._upstream,
            downstream=self._downstream,
            max_hops=settings.max_hops,
            trust_user_id=settings.trust_user_id,
        )
        source = Source(out, target, stamp, exchange=self.link.name, mandatory=True)
        self._target, self._source_channel = target, out
        self._down.wire.divert(into.number, target)
        self._up.wire.divert(out.number, source)
        self._down.wire.fed_by(self._up.wire)
        self._flows = True
        no_ack = settings.ack_mode is AckMode.NO_ACK
        if not no_ack:
            out.ask(methods.BASIC_QOS, methods.BASIC_QOS_OK, prefetch_count=settings.prefetch_count or AUTO_PREFETCH)
        try:
            await out.ask(
                methods.BASIC_CONSUME,
                methods.BASIC_CONSUME_OK,
                queue=self.queue,
                consumer_tag=self._tag,
                no_ack=no_ack,
                exclusive=True,
            )
        except ChannelClosedError as error:
            if error.code == ACCESS_REFUSED and "exclusive" in str(error):
                raise ServedElsewhereError(
                    f"{self._up.where}: {self.queue!r} is consumed by another", self.queue
                ) from error
            raise upstream.refusal(self._up, f"consuming from {self.queue!r}", error) from error

    def _learn(self, closed: asyncio.Future[BrokerError]) -> None:
        largest = largest_taken(closed.result())
        if largest is not None:
            self._memory.largest = largest
            self._memory.largest_until = closed.get_loop().time() + LARGEST_IS_KNOWN

    def _tell_cancelled(self, _: str) -> None:
        if not self._cancelled.done():
            self._cancelled.set_result(TransientError(f"{self._up.where}: queue {self.queue!r} was deleted"))


async def clean_up(link: Link, up: Connection, cluster: str) -> None:
    """Removes what a link that is gone for good has built upstream."""
    queue = upstream_queue_name(link, up.vhost, cluster)
    await upstream.delete_queue(up, queue)
    for letter in names.LETTERS:
        await upstream.delete_exchange(up, names.internal_exchange(queue, letter))
