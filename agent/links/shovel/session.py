"""One shovel while it runs: its queues, its messages, and its end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.delivery import Destination
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import AmqpUri
from agent.core.model import Binding, ExchangeSource, QueueDestination, QueueSource, ShovelLink
from agent.errors import BrokerError, Side, happening_on
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import End, Ends, written_uri
from agent.links.flow import Flow
from agent.links.learned import LearnedPath
from agent.links.options import FlowOptions
from agent.links.queue_declares import Opener
from agent.links.session import OpenSession
from agent.links.shovel import objects, until
from agent.links.shovel.headers import rewriter
from agent.links.shovel.until import NONE, Former
from agent.links.shovel.upkeep import Upkeep
from agent.links.tasks import both
from agent.tasks import run_until_first

CONSUMER_TAG: Final = "shovel"
COMES_BACK_WITHIN: Final = 30.0  # a broker notices within two heartbeats that a connection is lost
BETWEEN_LOOKS: Final = 0.05


@dataclass
class Memory:
    """What a shovel knows from one session to the next."""

    path: LearnedPath = field(default_factory=LearnedPath)
    until: until.Until = field(default_factory=until.Until)
    uri: AmqpUri | None = None
    flow: Flow | None = None  # of the session before
    others: int = 0  # consumers of the source queue when the count began

    @property
    def former(self) -> Former:
        """What that session has acknowledged."""
        flow = self.flow
        if flow is None:
            return NONE
        in_doubt = 0 if flow.source_has_read_all else flow.acknowledged - flow.acknowledged_for_sure
        return Former(flow.acknowledged, max(0, in_doubt))


class ShovelSession(OpenSession[Upkeep]):
    """See `agent.links.kind.Session`."""

    def __init__(
        self,
        link: ShovelLink,
        connections: Connections,
        ends: Ends,
        *,
        apart: bool,
        counts: Counts,
        memory: Memory,
        brokers: Brokers,
    ) -> None:
        super().__init__()
        self._link = link
        self._connections = connections
        self._ends = ends
        self._apart = apart
        self._counts = counts
        self._memory = memory
        self._brokers = brokers
        self._loop = asyncio.get_running_loop()

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        return objects.explained(super().explain(end))

    async def open(self) -> None:
        """Where nothing is to be moved any more, it opens without a flow."""
        link, memory = self._link, self._memory
        source, destination = await both(self._source(), self._destination())
        self._controls = [(source, Side.UPSTREAM), (destination, Side.DOWNSTREAM)]
        memory.uri = written_uri(link.uris, source.connection)
        ready, _ = await both(self._ready(source.connection), self._prepare(destination.connection))
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
            apart=link.id if self._apart else None,
            # A queue of its own goes with the connection, so no other link may keep that open.
            source_apart=link.id if isinstance(link.shovel.source, ExchangeSource) else None,
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
            counts=self._counts,
            path=self._memory.path,
            capture=self._brokers.capture(
                self._ends.source, up.connection, link=link.id, options=options, is_quorum=_is_quorum(source)
            ),
            room=self._brokers.room,
        )
        self._memory.flow = flow  # messages may be forwarded before it is known that it has begun
        await flow.start(rewriter_of(link, control.connection, down.connection, cluster=self._brokers.cluster))
        self._upkeep = Upkeep(flow, self._counts, looking, queue)

    def follow(self, bindings: frozenset[Binding]) -> None:
        """A shovel copies no bindings."""

    async def keep_up(self) -> None:
        if self.flow is not None and self._upkeep is not None:
            await self._until_finished(self.flow, self._upkeep)
        self._memory.until.begin_anew()

    async def _until_finished(self, flow: Flow, upkeep: Upkeep) -> None:
        """Whichever comes first: all is forwarded, or its time is over."""
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
        """How many messages wait; None where what a session before has taken and not acknowledged isn't back yet, or
        never comes back."""
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
        """Whether messages may still belong to a connection that was lost."""
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
            ack_mode=until.ack_mode(settings),
            prefetch=settings.prefetch_count or None,
            # AMQP doesn't show the type of an existing queue; what is done for a quorum queue does no harm to another.
            is_quorum=isinstance(self._link.shovel.source, QueueSource),
            limit=self._memory.until.remaining,
            quarantine_after=settings.quarantine_after,
            ends_on_return=isinstance(destination, QueueDestination),
        )


def _is_quorum(source: QueueSource | ExchangeSource) -> bool | None:
    """As far as the definition tells. A queue of the shovel's own goes with its connection; one that exists may be of
    any type."""
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
