"""A queue link as the runtime runs it, and one session of it: both queues looked at, its messages, and its upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.rewriting import Destination, Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.rpc import count_consumers
from agent.core import fields
from agent.core.links import prefetch
from agent.core.model import QueueLink
from agent.core.rules import names
from agent.errors import Side, happening_on
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import End, Ends, written_uri
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions
from agent.links.kind import Kind, RunnableLink, Session
from agent.links.queue.upkeep import LocalQueue, QueueUpkeep, Timing
from agent.links.queue.upstream_queue import UpstreamQueues
from agent.links.queue.visits import VisitHeaders
from agent.tasks import gather_both

TRIED_EVERY: Final = 6  # looks
PRIORITY: Final = (("x-priority", fields.long(-1)),)  # consumers upstream go first


class QueueLinks(Kind[QueueLink]):
    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.upstream_queues = UpstreamQueues()
        self.timing = Timing(brokers.errors)

    def ends(self, link: QueueLink) -> Ends:
        return self.brokers.federation_ends(link)

    def runnable(self, link: QueueLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableQueueLink:
        return RunnableQueueLink(self, link, counts, on_noted)

    def destination(self, link: QueueLink) -> Destination:
        return Destination("", link.name)

    def rewriter(self, link: QueueLink, source: Connection, _destination: Connection, /) -> Rewriter:
        return headers_of(link, source)


class RunnableQueueLink(RunnableLink[QueueLink]):
    def __init__(self, kind: QueueLinks, link: QueueLink, counts: Counts, on_noted: Callable[[], None]) -> None:
        super().__init__(kind, link, counts, on_noted)
        self.timing, self.upstream_queues = kind.timing, kind.upstream_queues
        self._asked = 0

    def inherit(self, former: RunnableLink[Any]) -> None:
        """Keep what was learned of the path; nothing else is kept from one session to the next."""
        self.path, self.uri, self.upstream_cluster = former.path, former.uri, former.upstream_cluster

    def session(self, connections: Connections, *, dedicated: bool) -> QueueSession:
        return QueueSession(self, connections, dedicated=dedicated)

    async def is_free(self, queue: str) -> bool:
        """True if no other consumer is exclusive. A single consumer may be, and only an attempt shows that: then True
        now and then."""
        async with await self.brokers.control(self.ends.source) as control:
            consumers = await count_consumers(control.connection, queue)
        self._asked += 1
        return consumers != 1 or self._asked % TRIED_EVERY == 0

    def waits_in(self, _vhost: str, /) -> str:
        return self.link.remote_name


class QueueSession(Session[QueueUpkeep]):
    def __init__(self, runnable: RunnableQueueLink, connections: Connections, *, dedicated: bool) -> None:
        super().__init__()
        self._runnable = runnable
        self._link = runnable.link
        self._brokers = runnable.brokers
        self._connections = connections
        self._dedicated = dedicated

    async def open(self) -> None:
        """Open the session. Messages flow from the start if consumers wait for them; whose consumers these are is read
        meanwhile."""
        link, runnable = self._link, self._runnable
        ends = runnable.ends
        self._brokers.consumers.expect(link.vhost, asyncio.get_running_loop().time())
        connections, dedicated = self._connections, link.id if self._dedicated else None
        publishing = connections.to_destination(ends.destination, dedicated=dedicated)
        (upstream, local), down = await gather_both(self._ask_both(ends), publishing)
        self._controls = [(upstream, Side.UPSTREAM), (local, Side.DOWNSTREAM)]
        there = upstream.connection
        runnable.uri, runnable.upstream_cluster = written_uri(link.uris, there), there.cluster
        connecting = connections.from_source(ends.source, there.uri, dedicated=dedicated)
        _, up = await gather_both(self._ensure(ends.source, there), connecting)
        headers = headers_of(link, there)
        options = self._options()
        flow = self.flow = Flow(
            options,
            up=up.connection,
            down=down.connection,
            counts=runnable.counts,
            path=runnable.path,
            # The queue upstream may be of another type than that of the same name downstream.
            capture=self._brokers.capture(ends.source, up.connection, link=link.id, options=options, is_quorum=None),
            room=self._brokers.room,
        )
        upkeep = QueueUpkeep(
            flow,
            runnable.counts,
            LocalQueue(link.vhost, link.name, local, self._brokers.consumers),
            control=upstream,
            remote_name=link.remote_name,
            headers=headers,
            timing=runnable.timing,
            is_auto_delete=link.queue.auto_delete,
        )
        await flow.start(headers, paused=not await upkeep.is_wanted())
        self._upkeep = upkeep

    async def _ask_both(self, ends: Ends) -> tuple[Shared, Shared]:
        return await gather_both(self._connections.ask(ends.source), self._ask_downstream(ends.destination))

    async def _ask_downstream(self, end: End) -> Shared:
        """Get a connection for requests to the downstream. Some brokers close it instead of answering that a queue with
        a long name is missing."""
        may_be_lost = not names.can_be_asked_for(self._link.name, self._link.vhost, kind="queue")
        with happening_on(Side.DOWNSTREAM):
            return await self._connections.ask(replace(end, may_be_lost=may_be_lost))

    async def _ensure(self, end: End, connection: Connection) -> None:
        link = self._link
        await self._runnable.upstream_queues.ensure(
            connection, link.remote_name, link.queue, spare=lambda: self._brokers.trial(end, connection.uri)
        )

    def _options(self) -> FlowOptions:
        link, settings = self._link, self._link.settings
        # Another prefetch needs another consumer, and a queue with auto-delete may not outlive the change.
        fixed_prefetch = prefetch.NEAR if link.queue.auto_delete else None
        return FlowOptions(
            link.remote_name,
            settings.consumer_tag or names.consumer_tag(link.upstream),
            Destination("", link.name),
            arguments=PRIORITY,
            ack_mode=settings.ack_mode,
            prefetch=settings.prefetch_count or fixed_prefetch,
            # AMQP doesn't show the type of an existing queue; what is done for a quorum queue does no harm to another.
            is_quorum=True,
            quarantine_after=settings.quarantine_after,
            ends_on_return=True,
        )


def headers_of(link: QueueLink, there: Connection) -> VisitHeaders:
    return VisitHeaders(str(written_uri(link.uris, there)), link.name, trust_user_id=link.settings.trust_user_id)
