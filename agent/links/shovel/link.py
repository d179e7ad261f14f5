"""A shovel as the runtime runs it, and one session of it: its queues, its messages, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.rewriting import Destination, Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.declares import Opener, declare, ensure_queue
from agent.amqp.failures import NOT_FOUND
from agent.amqp.rpc import attempt, count_messages, demand, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.refusal_texts import RESOURCE_ERROR
from agent.amqp10.terminus import Terminus, address_refused, ask_for_address, may_be_declared, shortened
from agent.core.links import read_limits
from agent.core.links.reconcile import asks_the_same
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ExchangeDestination,
    ExchangeSource,
    QueueDestination,
    QueueSource,
    ShovelDestination,
    ShovelLink,
    ShovelSource,
)
from agent.core.rules import names
from agent.core.text import listed
from agent.errors import BrokerError, Side, TransientError, happening_on
from agent.links.brokers import Connections
from agent.links.ends import End, Ends, shovel_ends, written_uri
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions
from agent.links.kind import Kind, RunnableLink, Session
from agent.links.shovel.delete_after import NONE, Former, Until, ack_mode
from agent.links.shovel.headers import rewriter
from agent.links.shovel.stream_place import StreamPlace
from agent.links.upkeep import Upkeep
from agent.tasks import gather_both, run_until_first

CONSUMER_TAG: Final = "shovel"
QUEUES: Final = "/queues/"  # how addresses of queues begin on RabbitMQ 4
COMES_BACK_WITHIN: Final = 30.0  # a broker notices within two heartbeats that a connection is lost
BETWEEN_LOOKS: Final = 0.05


class ShovelLinks(Kind[ShovelLink]):
    def ends(self, link: ShovelLink) -> Ends:
        return shovel_ends(link, self.brokers.downstream)

    def runnable(self, link: ShovelLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableShovel:
        return RunnableShovel(self, link, counts, on_noted)

    def destination(self, link: ShovelLink) -> Destination:
        destination = link.shovel.destination
        if isinstance(destination, QueueDestination):
            return Destination("", destination.queue)
        if isinstance(destination, AddressDestination):
            is_bare = isinstance(link.shovel.source, AddressSource)
            return Destination("", shortened(destination.address)) if is_bare else Destination()
        return Destination(destination.exchange, destination.routing_key)

    def rewriter(self, link: ShovelLink, source: Connection, destination: Connection, /) -> Rewriter:
        return rewriter(
            link,
            source=str(written_uri(link.uris, source)),
            destination=destination.uri,
            shown=str(written_uri(link.shovel.destination_uris, destination)),
            cluster=self.brokers.cluster,
            clock=time.time,
        )


@dataclass
class Memory:
    """The progress of a shovel towards its end, from one session to the next."""

    until: Until = field(default_factory=Until)
    flow: Flow | None = None  # of the session before
    others: int = 0  # consumers of the source queue when the count began

    @property
    def former(self) -> Former:
        """The acknowledgements of the session before."""
        flow = self.flow
        if flow is None:
            return NONE
        in_doubt = 0 if flow.source_has_read_all else flow.acknowledged - flow.acknowledged_for_sure
        return Former(flow.acknowledged, max(0, in_doubt))


class RunnableShovel(RunnableLink[ShovelLink]):
    def __init__(self, kind: ShovelLinks, link: ShovelLink, counts: Counts, on_noted: Callable[[], None]) -> None:
        super().__init__(kind, link, counts, on_noted)
        self.memory = Memory()
        source = link.shovel.source
        self.unapplied: tuple[str, ...] = ()  # arguments of the consumer, by the source
        self.place: StreamPlace | None = None
        if link.shovel.reads_stream and isinstance(source, QueueSource):
            queue = names.stream_offset(link.vhost, link.name, kind.brokers.cluster)
            self.place = StreamPlace(link.id, source.queue, queue, on_noted)

    @property
    def notes(self) -> str:
        of_place = "" if self.place is None else self.place.notes
        return "; ".join(filter(None, (of_place, _of_unapplied(self.unapplied))))

    def forget_after_other(self) -> None:
        if self.place is not None:
            self.place.forget()

    def note_restart(self) -> None:
        if self.place is not None:
            self.place.look_again()

    @property
    def remaining(self) -> int | None:
        return self.memory.until.remaining

    def inherit(self, former: RunnableLink[Any]) -> None:
        """Keep the count of what is left to move, unless the definition asks for something else: then it begins
        anew."""
        if isinstance(former, RunnableShovel) and asks_the_same(former.link, self.link):
            self.memory, self.path, self.uri = former.memory, former.path, former.uri
            self.place = former.place

    def session(self, connections: Connections, *, dedicated: bool) -> ShovelSession:
        return ShovelSession(self, connections, dedicated=dedicated)

    def waits_in(self, _vhost: str, /) -> str | None:
        """The source queue; None if the shovel makes one for itself, which goes with its session, and for a stream,
        where nothing shows what of it was copied."""
        source = self.link.shovel.source
        return source.queue if isinstance(source, QueueSource) and self.place is None else None


class ShovelSession(Session[RunnableShovel]):
    def __init__(self, runnable: RunnableShovel, connections: Connections, *, dedicated: bool) -> None:
        super().__init__(runnable, connections, dedicated=dedicated)
        self._link = runnable.link
        self._memory = runnable.memory
        self._place = runnable.place
        self._arguments = self._link.settings.consumer_arguments
        self._is_shown = False  # how many messages wait at an address
        self._loop = asyncio.get_running_loop()

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """The error, with what to do if messages go to an exchange that is missing at the destination."""
        error = super().explain(end)
        cause = error.__cause__
        if not isinstance(cause, ChannelClosedError) or cause.code != NOT_FOUND:
            return error
        advised = f"{error.what}: declare it, or name another dest-exchange; the shovel tries again"
        return TransientError(advised, where=error.where, cause=error)

    async def open(self) -> None:
        """Open the session, without a flow if nothing is to be moved any more."""
        link, memory = self._link, self._memory
        source, destination = await gather_both(
            self._ask(Side.UPSTREAM, self._ends.source), self._ask(Side.DOWNSTREAM, self._ends.destination)
        )
        self._controls = [(source, Side.UPSTREAM), (destination, Side.DOWNSTREAM)]
        self._runnable.uri = written_uri(link.uris, source.connection)
        ready, _ = await gather_both(self._ready(source.connection), self._prepare(destination.connection))
        memory.until.begin(
            link.settings,
            ready=ready,
            former=memory.former,
            comes_again=not isinstance(link.shovel.source, ExchangeSource),
            now=self._loop.time(),
        )
        memory.flow = None
        if memory.until.has_passed(self._loop.time()):
            return
        up, down = await self._connections.flow(
            self._ends.source,
            source.connection.uri,
            self._ends.destination,
            destination_uri=destination.connection.uri,
            dedicated=self._dedicated,
            # A queue of its own goes with the connection, so no other link may keep that open.
            source_dedicated=link.id if isinstance(link.shovel.source, ExchangeSource) else None,
        )
        await self._begin(up, down, control=source)

    async def _begin(self, up: Shared, down: Shared, *, control: Shared) -> None:
        link, source = self._link, self._link.shovel.source
        looking: Shared | None = control
        if isinstance(source, QueueSource):
            queue = source.queue
        elif isinstance(source, AddressSource):
            queue, looking = shortened(source.address), control if self._is_shown else None
        else:  # no other connection may look at a queue that is exclusive to this one
            queue, looking = await _bind_own_queue(up.connection, source), up
        is_quorum = True if self._place is not None else _is_quorum(source)
        flow = self._new_flow(self._options(queue), up.connection, down.connection, is_quorum=is_quorum)
        self._memory.flow = flow  # messages may be forwarded before it is known that it has begun
        if self._place is not None:
            self._place.follow(flow)
        await flow.start(self._runnable.kind.rewriter(link, control.connection, down.connection))
        self._runnable.unapplied = flow.unapplied
        look: Callable[[], Coroutine[Any, Any, int | None]] = _unknown
        if looking is not None and self._place is None:
            count = _count_if_shown if isinstance(source, AddressSource) else count_messages
            look = partial(count, looking, queue)
        self._upkeep = Upkeep(flow, self._runnable.counts, look)

    async def keep_up(self) -> None:
        if self.flow is not None and self._upkeep is not None:
            await self._until_finished(self.flow, self._upkeep)
        self._memory.until.begin_anew()

    async def _until_finished(self, flow: Flow, upkeep: Upkeep) -> None:
        """Run until all is forwarded or the time is over, whichever comes first."""
        ends_at = self._memory.until.ends_at
        timed = [] if ends_at is None else [asyncio.sleep(max(0.0, ends_at - self._loop.time()))]
        followed = [] if self._memory.until.remaining is None else [flow.follow_acknowledged()]
        remembered = [] if self._place is None else [self._place.keep(self._remembering)]
        await run_until_first(upkeep.run(), flow.finished(), *followed, *remembered, *timed)

    async def leave(self, *, is_settled: bool) -> None:
        if self._place is not None:
            await self._place.leave(self._remembering, remembers=is_settled and bool(self._controls))

    async def _remembering(self) -> Shared:
        """The connection to publish offsets on, to the broker that the stream is read from."""
        source, _ = self._controls[0]
        return await self._brokers.remembering(self._ends.source, source.connection.uri)

    async def _ask(self, side: Side, end: End) -> Shared:
        with happening_on(side):
            return await self._connections.ask(end)

    async def _ready(self, connection: Connection) -> int | None:
        """The number of messages that wait; None if what a session before has taken and not acknowledged isn't back
        yet, or never comes back."""
        source, memory = self._link.shovel.source, self._memory
        if isinstance(source, AddressSource) and (terminus := self._ends.source.terminus) is not None:
            with happening_on(Side.UPSTREAM):
                is_answered = await _ensure_address(connection, terminus, source)
                self._is_shown = is_answered and terminus.is_queue and connection.server.shows_queues
        if not isinstance(source, QueueSource):
            return None
        # Messages may still belong to a connection that was lost.
        must_wait = memory.until.is_counting and memory.flow is not None and not memory.flow.source_has_read_all
        deadline = self._loop.time() + COMES_BACK_WITHIN
        with happening_on(Side.UPSTREAM):
            while True:
                found = await ensure_queue(
                    connection, source, spare=self._spare(self._ends.source, connection), key="src-predeclared"
                )
                if self._place is not None:
                    await self._begin_stream(self._place, connection, is_new=found.was_missing)
                    return None
                if not memory.until.is_counting:
                    memory.others = found.consumers
                if not must_wait or found.consumers <= memory.others:
                    return found.messages
                if self._loop.time() >= deadline:
                    return None
                await asyncio.sleep(BETWEEN_LOOKS)

    async def _begin_stream(self, place: StreamPlace, connection: Connection, *, is_new: bool) -> None:
        spare = self._spare(self._ends.source, connection)
        self._arguments = await place.begin(connection, self._arguments, is_new=is_new, spare=spare)

    async def _prepare(self, connection: Connection) -> None:
        with happening_on(Side.DOWNSTREAM):
            destination, terminus = self._link.shovel.destination, self._ends.destination.terminus
            if isinstance(destination, AddressDestination) and terminus is not None:
                await _ensure_address(connection, terminus, destination)
                return
            spare = self._spare(self._ends.destination, connection)
            await _ensure_destination(connection, destination, spare=spare)

    def _spare(self, end: End, connection: Connection) -> Opener:
        return lambda: self._brokers.trial(end, connection.uri)

    def _options(self, queue: str) -> FlowOptions:
        settings, destination = self._link.settings, self._link.shovel.destination
        return FlowOptions(
            queue,
            settings.consumer_tag or f"{CONSUMER_TAG}-{self._link.id}",
            self._runnable.kind.destination(self._link),
            arguments=self._arguments,
            ack_mode=ack_mode(settings, reads_stream=self._place is not None),
            # Another prefetch needs another consumer, and what is on its way to the first would come twice.
            prefetch=settings.prefetch_count or (None if self._place is None else read_limits.NEAR_PREFETCH),
            # AMQP doesn't show the type of an existing queue; what is done for a quorum queue does no harm to another.
            is_quorum=isinstance(self._link.shovel.source, QueueSource) and self._place is None,
            limit=self._memory.until.remaining,
            quarantine_after=settings.quarantine_after,
            ends_on_return=isinstance(destination, QueueDestination),
            offsets=None if self._place is None else self._place.new_offsets(),
            opens_first=isinstance(destination, AddressDestination),
        )


def _of_unapplied(names: tuple[str, ...]) -> str:
    """The note on arguments that the source doesn't apply; empty if it applies all."""
    if not names:
        return ""
    return (
        f"the source doesn't show that it applies {listed(names)} of src-consumer-args, so it may deliver "
        "as if that weren't there: remove it, or write a filter that this broker knows"
    )


def _is_quorum(source: ShovelSource) -> bool | None:
    """True if the source queue is replicated, as far as the definition shows, and None if it doesn't. A queue of the
    shovel's own goes with its connection; one that exists may be of any type."""
    if isinstance(source, ExchangeSource):
        return False
    return True if isinstance(source, QueueSource) and source.is_quorum else None


async def _count_if_shown(control: Shared, queue: str) -> int | None:
    """The number of messages at an address of RabbitMQ 4, which shows none while it has an alarm."""
    try:
        return await count_messages(control, queue)
    except BrokerError as error:
        if isinstance(error.__cause__, ChannelClosedError) and error.__cause__.code == RESOURCE_ERROR:
            return None
        raise


async def _unknown() -> None:
    """In place of the number of messages that wait, where nothing shows it: that of a stream counts all that it
    keeps."""


async def _ensure_address(
    connection: Connection, terminus: Terminus, place: AddressSource | AddressDestination
) -> bool:
    """Raise BrokerError if the broker refuses the address of a connection by AMQP 1.0; return False if it can't be
    asked. A missing queue of RabbitMQ 4 is declared durable."""
    answer = await ask_for_address(connection, terminus)
    if may_be_declared(connection, terminus, answer) and not place.is_predeclared:
        answer = await ask_for_address(connection, terminus, passive=False)
    if isinstance(answer, ChannelClosedError):
        raise address_refused(connection, terminus, answer)
    return answer is not None


async def _bind_own_queue(connection: Connection, source: ExchangeSource) -> str:
    """Declare a new queue, bind it to the exchange and return its name; it goes with the connection, as the plugin's
    does."""
    declared = await demand(connection, "declaring a queue of the shovel's own", methods.QUEUE_DECLARE, exclusive=True)
    queue: str = declared["queue"]
    bound = await attempt(
        connection, methods.QUEUE_BIND, queue=queue, exchange=source.exchange, routing_key=source.routing_key
    )
    if isinstance(bound, ChannelClosedError):
        raise _no_exchange(connection, source.exchange, bound, doing="binding to")
    return queue


async def _ensure_destination(connection: Connection, destination: ShovelDestination, *, spare: Opener) -> None:
    """Declare a queue that is missing; raise BrokerError if an exchange is, since publishing to it would close the
    channel."""
    if isinstance(destination, QueueDestination):
        await ensure_queue(connection, destination, spare=spare, key="dest-predeclared")
    elif isinstance(destination, ExchangeDestination) and destination.exchange:
        found = await declare(connection, "exchange", destination.exchange, passive=True)
        if isinstance(found, ChannelClosedError):
            raise _no_exchange(connection, destination.exchange, found, doing="looking for")


def _no_exchange(connection: Connection, exchange: str, error: ChannelClosedError, *, doing: str) -> BrokerError:
    if error.code != NOT_FOUND:
        return refusal(connection, f"{doing} exchange {exchange!r}", error)
    advised = f"declare it; the shovel waits for it ({error.what})"
    what = f"exchange {exchange!r} is missing in vhost {connection.vhost!r}: {advised}"
    return TransientError(what, where=connection.where, cause=error)
