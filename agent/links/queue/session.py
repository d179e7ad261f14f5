"""One queue link while it runs: both queues looked at, its messages, and its upkeep."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts, Destination
from agent.core import fields
from agent.core.addresses.uri import AmqpUri
from agent.core.links import prefetch
from agent.core.model import Binding, QueueLink, QueueType
from agent.core.rules import names
from agent.errors import Side, happening_on
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import End, Ends, written_uri
from agent.links.flow import Flow
from agent.links.learned import LearnedPath
from agent.links.options import FlowOptions
from agent.links.queue.looks import LocalQueue
from agent.links.queue.timing import Timing
from agent.links.queue.upkeep import Upkeep
from agent.links.queue.upstream_queue import UpstreamQueues
from agent.links.queue.visits import VisitHeaders
from agent.links.session import OpenSession
from agent.links.tasks import both

PRIORITY: Final = (("x-priority", fields.long(-1)),)  # consumers upstream go first


@dataclass
class Memory:
    """What a link knows from one session to the next."""

    path: LearnedPath = field(default_factory=LearnedPath)
    uri: AmqpUri | None = None
    upstream_cluster: str | None = None


class QueueSession(OpenSession[Upkeep]):
    """See `agent.links.kind.Session`."""

    def __init__(
        self,
        link: QueueLink,
        connections: Connections,
        *,
        apart: bool,
        counts: Counts,
        memory: Memory,
        brokers: Brokers,
        timing: Timing,
        upstream_queues: UpstreamQueues,
    ) -> None:
        super().__init__()
        self._link = link
        self._connections = connections
        self._apart = apart
        self._counts = counts
        self._memory = memory
        self._brokers = brokers
        self._timing = timing
        self._upstream_queues = upstream_queues

    async def open(self) -> None:
        """Messages flow from the start where consumers wait for them; whose they are is read meanwhile."""
        link = self._link
        ends = self._brokers.federation_ends(link)
        self._brokers.consumers.expect(link.vhost, asyncio.get_running_loop().time())
        connections, apart = self._connections, link.id if self._apart else None
        publishing = connections.to_destination(ends.destination, apart=apart)
        (upstream, local), down = await both(self._ask_both(ends), publishing)
        self._controls = [(upstream, Side.UPSTREAM), (local, Side.DOWNSTREAM)]
        self._remember(upstream)
        connecting = connections.from_source(ends.source, upstream.connection.uri, apart=apart)
        _, up = await both(self._ensure(ends.source, upstream.connection), connecting)
        headers = headers_of(link, upstream.connection)
        options, is_quorum = self._options(), link.queue.type is QueueType.QUORUM
        flow = self.flow = Flow(
            options,
            up=up.connection,
            down=down.connection,
            counts=self._counts,
            path=self._memory.path,
            capture=self._brokers.capture(
                ends.source, up.connection, link=link.id, options=options, is_quorum=is_quorum
            ),
            room=self._brokers.room,
        )
        queue = LocalQueue(link.vhost, link.name, local, self._brokers.consumers)
        upkeep = Upkeep(
            flow,
            self._counts,
            queue,
            control=upstream,
            remote_name=link.remote_name,
            headers=headers,
            timing=self._timing,
            is_auto_delete=link.queue.auto_delete,
        )
        await flow.start(headers, paused=not await upkeep.is_wanted())
        self._upkeep = upkeep

    async def _ask_both(self, ends: Ends) -> tuple[Shared, Shared]:
        return await both(self._connections.ask(ends.source), self._ask_downstream(ends.destination))

    async def _ask_downstream(self, end: End) -> Shared:
        with happening_on(Side.DOWNSTREAM):
            return await self._connections.ask(self._asked(end))

    async def _ensure(self, end: End, connection: Connection) -> None:
        link = self._link
        await self._upstream_queues.ensure(
            connection, link.remote_name, link.queue, spare=lambda: self._brokers.trial(end, connection.uri)
        )

    def _asked(self, end: End) -> End:
        """Some brokers close the connection instead of answering that a queue with a long name is missing."""
        link = self._link
        return replace(end, may_be_lost=not names.can_be_asked_for(link.name, link.vhost, kind="queue"))

    def follow(self, bindings: frozenset[Binding]) -> None:
        """A queue has no bindings of its own to copy."""

    def _remember(self, control: Shared) -> None:
        there = control.connection
        self._memory.uri, self._memory.upstream_cluster = written_uri(self._link.uris, there), there.cluster

    @property
    def _fixed_prefetch(self) -> int | None:
        """Another prefetch needs another consumer, and a queue with auto-delete may not outlive the change."""
        return prefetch.NEAR if self._link.queue.auto_delete else None

    def _options(self) -> FlowOptions:
        link, settings = self._link, self._link.settings
        return FlowOptions(
            link.remote_name,
            settings.consumer_tag or names.consumer_tag(link.upstream),
            destination_of(link),
            arguments=PRIORITY,
            ack_mode=settings.ack_mode,
            prefetch=settings.prefetch_count or self._fixed_prefetch,
            # AMQP doesn't show the type of an existing queue; what is done for a quorum queue does no harm to another.
            is_quorum=True,
            quarantine_after=settings.quarantine_after,
            ends_on_return=True,
        )


def headers_of(link: QueueLink, there: Connection) -> VisitHeaders:
    return VisitHeaders(str(written_uri(link.uris, there)), link.name, trust_user_id=link.settings.trust_user_id)


def destination_of(link: QueueLink) -> Destination:
    return Destination("", link.name)
