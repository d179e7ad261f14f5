"""A queue link as the runtime runs it, and one session of it: both queues looked at, its messages, and its upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.rewriting import Destination
from agent.amqp.data.splice import Counts
from agent.amqp.declares import Opener, declare_any, declare_on_spare, ensure
from agent.amqp.rpc import count_consumers
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError
from agent.amqp.wire.methods import Call
from agent.core import fields
from agent.core.links import read_limits
from agent.core.model import Queue, QueueLink
from agent.core.rules import names
from agent.core.rules.declarations import like_queue, undeclarable
from agent.errors import PermanentError, Side, happening_on
from agent.links.brokers import Brokers, Connections
from agent.links.ends import End, Ends, written_uri
from agent.links.flow_options import FlowOptions
from agent.links.kind import Kind, RunnableLink, Session
from agent.links.queue.upkeep import QueueUpkeep, Timing
from agent.links.queue.visits import VisitHeaders
from agent.tasks import gather_both

TRIED_EVERY: Final = 6  # looks
PRIORITY: Final = (("x-priority", fields.long(-1)),)  # consumers upstream go first


class UpstreamQueues:
    """Declares the queues that links consume from, and remembers, for all links, which brokers take transient queues.

    Some close the connection over one. So on each connection the first one is declared on a spare connection.
    """

    def __init__(self) -> None:
        self._takers: WeakSet[Connection] = WeakSet()
        self._trials: WeakKeyDictionary[Connection, asyncio.Lock] = WeakKeyDictionary()

    async def ensure(self, connection: Connection, name: str, like: Queue, *, spare: Opener) -> None:
        """Use an existing queue as it is; declare a missing one with the downstream's attributes.

        Some brokers close the connection over a refusal with a long name: those are asked on a `spare` one.
        """
        declaring = partial(self._declare, connection, spare, name, like)
        await ensure(connection, "queue", name, spare=spare, declaring=declaring)

    async def _declare(
        self, connection: Connection, spare: Opener, name: str, like: Queue
    ) -> Call | ChannelClosedError:
        if like.unusable is not None:
            raise PermanentError(undeclarable(name, like), where=connection.where)
        values = {"durable": like.durable, "auto_delete": like.auto_delete, "arguments": like_queue(like)}
        is_doubtful = not like.durable and connection.server.may_refuse_transient_queues
        if is_doubtful and connection not in self._takers:
            return await self._try_transient(connection, spare, name, values)
        return await declare_any(connection, "queue", name, spare=spare, **values)

    async def _try_transient(
        self, connection: Connection, spare: Opener, name: str, values: dict[str, Any]
    ) -> Call | ChannelClosedError:
        async with self._trials.setdefault(connection, asyncio.Lock()):
            if connection in self._takers:
                return await declare_any(connection, "queue", name, spare=spare, **values)
            found = await declare_on_spare(spare, "queue", name, **values)
            if isinstance(found, ConnectionClosedError):
                raise PermanentError(
                    f"queue {name!r} is missing, and the broker refuses to declare it as a transient queue, which it "
                    f"is downstream: declare it upstream as durable ({found})",
                    where=connection.where,
                ) from found
            if not isinstance(found, ChannelClosedError):
                self._takers.add(connection)
            return found


class QueueLinks(Kind[QueueLink]):
    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.upstream_queues = UpstreamQueues()
        self.timing = Timing(brokers.errors)

    def runnable(self, link: QueueLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableQueueLink:
        return RunnableQueueLink(self, link, counts, on_noted)

    def destination(self, link: QueueLink) -> Destination:
        return Destination("", link.name)

    def rewriter(self, link: QueueLink, source: Connection, _destination: Connection, /) -> VisitHeaders:
        return VisitHeaders(str(written_uri(link.uris, source)), link.name, trust_user_id=link.settings.trust_user_id)


class RunnableQueueLink(RunnableLink[QueueLink]):
    kind: QueueLinks
    _asked = 0

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


class QueueSession(Session[RunnableQueueLink]):
    async def open(self) -> None:
        """Open the session. Messages flow from the start if consumers wait for them; whose consumers these are is read
        meanwhile."""
        runnable, ends = self._runnable, self._ends
        link = runnable.link
        self._brokers.consumers.expect(link.vhost, asyncio.get_running_loop().time())
        connections, dedicated = self._connections, self._dedicated
        publishing = connections.to_destination(ends.destination, dedicated=dedicated)
        (upstream, local), down = await gather_both(self._ask_both(ends), publishing)
        self._controls = [(upstream, Side.UPSTREAM), (local, Side.DOWNSTREAM)]
        there = upstream.connection
        runnable.uri, runnable.upstream_cluster = written_uri(link.uris, there), there.cluster
        connecting = connections.from_source(ends.source, there.uri, dedicated=dedicated)
        _, up = await gather_both(self._ensure(ends.source, there), connecting)
        headers = runnable.kind.rewriter(link, there, down.connection)
        # The queue upstream may be of another type than that of the same name downstream.
        flow = self._new_flow(self._options(), up.connection, down.connection, is_quorum=None)
        upkeep = QueueUpkeep(
            flow,
            runnable.counts,
            link,
            upstream=upstream,
            local=local,
            consumers=self._brokers.consumers,
            headers=headers,
            timing=runnable.kind.timing,
        )
        await flow.start(headers, paused=not await upkeep.is_wanted())
        self._upkeep = upkeep

    async def _ask_both(self, ends: Ends) -> tuple[Shared, Shared]:
        # As arguments of a coroutine that is cancelled before it begins, the two would never be awaited.
        return await gather_both(self._connections.ask(ends.source), self._ask_downstream(ends.destination))

    async def _ask_downstream(self, end: End) -> Shared:
        """Get a connection for requests to the downstream. Some brokers close it instead of answering that a queue with
        a long name is missing."""
        link = self._runnable.link
        may_be_lost = not names.can_be_asked_for(link.name, link.vhost, kind="queue")
        with happening_on(Side.DOWNSTREAM):
            return await self._connections.ask(replace(end, may_be_lost=may_be_lost))

    async def _ensure(self, end: End, connection: Connection) -> None:
        link = self._runnable.link
        await self._runnable.kind.upstream_queues.ensure(
            connection, link.remote_name, link.queue, spare=lambda: self._brokers.trial(end, connection.uri)
        )

    def _options(self) -> FlowOptions:
        link, settings = self._runnable.link, self._runnable.link.settings
        # Another prefetch needs another consumer, and a queue with auto-delete may not outlive the change.
        fixed_prefetch = read_limits.NEAR_PREFETCH if link.queue.auto_delete else None
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
            keeps_consumer=link.queue.auto_delete,
        )
