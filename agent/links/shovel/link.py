"""A shovel as the runtime runs it, and one session of it: its queues, its messages, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.rewriting import Destination, Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.declares import Opener
from agent.amqp.rpc import count_messages
from agent.core.addresses.uri import AmqpUri
from agent.core.links.restarts import asks_the_same
from agent.core.model import ExchangeDestination, ExchangeSource, QueueDestination, QueueSource, ShovelLink, ShovelPlace
from agent.core.rules import names
from agent.errors import BrokerError, Side, happening_on
from agent.links.connections import Connections
from agent.links.ends import End, Ends, reachable, written_uri
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions
from agent.links.kind import Kind, RunnableLink, Session
from agent.links.lag_monitor import LagMonitor
from agent.links.shovel import objects
from agent.links.shovel.delete_after import NONE, Former, Until, ack_mode
from agent.links.shovel.headers import rewriter
from agent.tasks import gather_both, run_until_first

CONSUMER_TAG: Final = "shovel"
COMES_BACK_WITHIN: Final = 30.0  # a broker notices within two heartbeats that a connection is lost
BETWEEN_LOOKS: Final = 0.05


class ShovelLinks(Kind[ShovelLink]):
    def ends(self, link: ShovelLink) -> Ends:
        return shovel_ends(link, self.brokers.downstream)

    def runnable(self, link: ShovelLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableShovel:
        return RunnableShovel(self, link, counts, on_noted)

    def destination(self, link: ShovelLink) -> Destination:
        return destination_of(link)

    def rewriter(self, link: ShovelLink, source: Connection, destination: Connection, /) -> Rewriter:
        return rewriter_of(link, source, destination, cluster=self.brokers.cluster)


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

    @property
    def remaining(self) -> int | None:
        return self.memory.until.remaining

    def inherit(self, former: RunnableLink[Any]) -> None:
        """Keep the count of what is left to move, unless the definition asks for something else: then it begins
        anew."""
        if isinstance(former, RunnableShovel) and asks_the_same(former.link, self.link):
            self.memory, self.path, self.uri = former.memory, former.path, former.uri

    def session(self, connections: Connections, *, dedicated: bool) -> ShovelSession:
        return ShovelSession(self, connections, dedicated=dedicated)

    def waits_in(self, _vhost: str, /) -> str | None:
        """The source queue; None if the shovel makes one for itself, which goes with its session."""
        source = self.link.shovel.source
        return source.queue if isinstance(source, QueueSource) else None


class ShovelUpkeep:
    """The upkeep of one open session; `run` does what `tick` finds to do. `control` is the connection on which the
    queue is looked at."""

    def __init__(self, flow: Flow, counts: Counts, control: Shared, queue: str) -> None:
        self._watch = LagMonitor(flow, counts)
        self._control = control
        self._queue = queue

    @property
    def backlog(self) -> int | None:
        return self._watch.backlog

    def is_quiet(self, now: float) -> bool:
        return self._watch.is_quiet(now)

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """Find what is due; return for how many seconds something has waited and nothing was confirmed."""
        watch = self._watch
        waited = watch.observe(now, is_blocked=is_blocked, must_look=now >= watch.due_at)
        watch.rest(watch.due_at, waits=watch.waits)
        return waited

    async def run(self) -> None:
        """Do what is found, until cancelled or until a broker refuses something."""
        while True:
            await self._watch.wake.wait()
            self._watch.wake.clear()
            await self._watch.catch_up(self._ready)
            self._watch.stir()

    async def _ready(self) -> int:
        return await count_messages(self._control, self._queue)


class ShovelSession(Session[ShovelUpkeep]):
    def __init__(self, runnable: RunnableShovel, connections: Connections, *, dedicated: bool) -> None:
        super().__init__()
        self._runnable = runnable
        self._link = runnable.link
        self._ends = runnable.ends
        self._memory = runnable.memory
        self._brokers = runnable.brokers
        self._connections = connections
        self._dedicated = dedicated
        self._loop = asyncio.get_running_loop()

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        return objects.explained(super().explain(end))

    async def open(self) -> None:
        """Open the session, without a flow if nothing is to be moved any more."""
        link, memory = self._link, self._memory
        source, destination = await gather_both(self._source(), self._destination())
        self._controls = [(source, Side.UPSTREAM), (destination, Side.DOWNSTREAM)]
        self._runnable.uri = written_uri(link.uris, source.connection)
        ready, _ = await gather_both(self._ready(source.connection), self._prepare(destination.connection))
        memory.until.begin(
            link.settings,
            ready=ready,
            former=memory.former,
            comes_again=isinstance(link.shovel.source, QueueSource),
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
            dedicated=link.id if self._dedicated else None,
            # A queue of its own goes with the connection, so no other link may keep that open.
            source_dedicated=link.id if isinstance(link.shovel.source, ExchangeSource) else None,
        )
        await self._begin(up, down, control=source)

    async def _begin(self, up: Shared, down: Shared, *, control: Shared) -> None:
        link, source = self._link, self._link.shovel.source
        if isinstance(source, QueueSource):
            queue, looking = source.queue, control
        else:  # no other connection may look at a queue that is exclusive to this one
            queue, looking = await objects.bind_own_queue(up.connection, source), up
        options = self._options(queue)
        flow = self.flow = Flow(
            options,
            up=up.connection,
            down=down.connection,
            counts=self._runnable.counts,
            path=self._runnable.path,
            capture=self._brokers.capture(
                self._ends.source, up.connection, link=link.id, options=options, is_quorum=_is_quorum(source)
            ),
            room=self._brokers.room,
        )
        self._memory.flow = flow  # messages may be forwarded before it is known that it has begun
        await flow.start(rewriter_of(link, control.connection, down.connection, cluster=self._brokers.cluster))
        self._upkeep = ShovelUpkeep(flow, self._runnable.counts, looking, queue)

    async def keep_up(self) -> None:
        if self.flow is not None and self._upkeep is not None:
            await self._until_finished(self.flow, self._upkeep)
        self._memory.until.begin_anew()

    async def _until_finished(self, flow: Flow, upkeep: ShovelUpkeep) -> None:
        """Run until all is forwarded or the time is over, whichever comes first."""
        ends_at = self._memory.until.ends_at
        timed = [] if ends_at is None else [asyncio.sleep(max(0.0, ends_at - self._loop.time()))]
        followed = [] if self._memory.until.remaining is None else [flow.follow_acknowledged()]
        await run_until_first(upkeep.run(), flow.finished(), *followed, *timed)

    async def _source(self) -> Shared:
        with happening_on(Side.UPSTREAM):
            return await self._connections.ask(self._ends.source)

    async def _destination(self) -> Shared:
        with happening_on(Side.DOWNSTREAM):
            return await self._connections.ask(self._ends.destination)

    async def _ready(self, connection: Connection) -> int | None:
        """The number of messages that wait; None if what a session before has taken and not acknowledged isn't back
        yet, or never comes back."""
        source, memory = self._link.shovel.source, self._memory
        if isinstance(source, ExchangeSource):
            return None
        must_wait = memory.until.is_counting and self._may_come_again
        deadline = self._loop.time() + COMES_BACK_WITHIN
        with happening_on(Side.UPSTREAM):
            while True:
                ready, consumers = await objects.ensure_queue(
                    connection, source, spare=self._spare(self._ends.source, connection), key="src-predeclared"
                )
                if not memory.until.is_counting:
                    memory.others = consumers
                if not must_wait or consumers <= memory.others:
                    return ready
                if self._loop.time() >= deadline:
                    return None
                await asyncio.sleep(BETWEEN_LOOKS)

    @property
    def _may_come_again(self) -> bool:
        """True if messages may still belong to a connection that was lost."""
        flow = self._memory.flow
        return flow is not None and not flow.source_has_read_all

    async def _prepare(self, connection: Connection) -> None:
        with happening_on(Side.DOWNSTREAM):
            spare = self._spare(self._ends.destination, connection)
            await objects.ensure_destination(connection, self._link.shovel.destination, spare=spare)

    def _spare(self, end: End, connection: Connection) -> Opener:
        return lambda: self._brokers.trial(end, connection.uri)

    def _options(self, queue: str) -> FlowOptions:
        settings, destination = self._link.settings, self._link.shovel.destination
        return FlowOptions(
            queue,
            settings.consumer_tag or f"{CONSUMER_TAG}-{self._link.id}",
            destination_of(self._link),
            arguments=settings.consumer_arguments,
            ack_mode=ack_mode(settings),
            prefetch=settings.prefetch_count or None,
            # AMQP doesn't show the type of an existing queue; what is done for a quorum queue does no harm to another.
            is_quorum=isinstance(self._link.shovel.source, QueueSource),
            limit=self._memory.until.remaining,
            quarantine_after=settings.quarantine_after,
            ends_on_return=isinstance(destination, QueueDestination),
        )


def _is_quorum(source: QueueSource | ExchangeSource) -> bool | None:
    """True if the source queue is replicated, as far as the definition shows, and None if it doesn't. A queue of the
    shovel's own goes with its connection; one that exists may be of any type."""
    if isinstance(source, ExchangeSource):
        return False
    return True if source.is_quorum else None


def rewriter_of(link: ShovelLink, source: Connection, destination: Connection, *, cluster: str) -> Rewriter:
    return rewriter(
        link,
        source=str(written_uri(link.uris, source)),
        destination=destination.uri,
        shown=str(written_uri(link.shovel.destination_uris, destination)),
        cluster=cluster,
        clock=time.time,
    )


def destination_of(link: ShovelLink) -> Destination:
    destination = link.shovel.destination
    if isinstance(destination, QueueDestination):
        return Destination("", destination.queue)
    return Destination(destination.exchange, destination.routing_key)


DEFAULT_VHOST: Final = "/"


def shovel_ends(link: ShovelLink, downstream: Sequence[AmqpUri]) -> Ends:
    """The ends of a shovel. An error names the end and not the shovel, so that shovels between the same brokers share
    connections; wherever the error is shown, the shovel's name is beside it."""
    shovel = link.shovel
    return Ends(
        _end(link, "shovel source", reachable(shovel.source_uris, DEFAULT_VHOST, downstream), _named(shovel.source)),
        _end(
            link,
            "shovel destination",
            reachable(shovel.destination_uris, DEFAULT_VHOST, downstream),
            _named(shovel.destination),
        ),
    )


def _end(link: ShovelLink, where: str, uris: tuple[AmqpUri, ...], named: str) -> End:
    may_be_lost = any(not names.can_be_declared(named, uri.vhost(DEFAULT_VHOST)) for uri in uris)
    return End(where, uris, DEFAULT_VHOST, may_be_lost=may_be_lost, name=f"Shovel {link.name}")


def _named(place: ShovelPlace) -> str:
    match place:
        case QueueSource(queue) | QueueDestination(queue):
            return queue
        case ExchangeSource(exchange):
            return exchange
        case ExchangeDestination(exchange):
            return exchange or ""
