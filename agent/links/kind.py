"""The contract of a kind of link: the runtime runs links through it and knows no kind, and kinds don't know each other.

A kind is a folder with a `Kind`, and a line in `agent.links.registry`. Its `RunnableLink` is one link with what its
sessions learn for those that follow, its `Session` the time from one opening to its end. What isn't overridden holds
for a link that federates, copies no bindings, builds nothing upstream, and has no limit.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.data.publish_tracker import Counts
from agent.amqp.data.rewriting import Destination, Rewriter
from agent.amqp.rpc import count_consumers
from agent.core.addresses.uri import AmqpUri
from agent.core.links.poison_search import Watch
from agent.core.links.upstream_steps import Known
from agent.core.model import Binding, Link
from agent.errors import BrokerError, PermanentError, Side, TransientError
from agent.links.brokers import Brokers, Connections
from agent.links.ends import Ends
from agent.links.flow import Flow
from agent.links.flow_options import FlowOptions, PathMemory
from agent.links.upkeep import Upkeep

LinkT = TypeVar("LinkT", bound=Link)
RunnableT = TypeVar("RunnableT", bound="RunnableLink[Any]")


class Session(ABC, Generic[RunnableT]):
    """One link from its opening to its end. The flow's `close` and `leave` come at the end, however far `open` came,
    and then the session's `leave`.

    `open` fills in the connections for requests, the flow and the upkeep, as far as it comes.
    """

    def __init__(self, runnable: RunnableT, connections: Connections, *, dedicated: bool) -> None:
        """`dedicated`: on connections that no other link uses."""
        self.flow: Flow | None = None  # before messages may flow
        self._runnable = runnable
        self._brokers = runnable.brokers
        self._ends = runnable.ends
        self._connections = connections
        self._dedicated: str | None = runnable.link.id if dedicated else None
        connections.reads_alone = None if runnable.rate_limit is None else runnable.link.id
        self._controls: list[tuple[Shared, Side]] = []
        self._upkeep: Upkeep | None = None

    @abstractmethod
    async def open(self) -> None:
        """Open the session, and return once messages flow; may raise BrokerError or ServedElsewhereError."""

    def _new_flow(self, options: FlowOptions, up: Connection, down: Connection, *, is_quorum: bool | None) -> Flow:
        """The flow of the session from now on, to be started. `is_quorum`: as in `Lane`."""
        runnable, brokers, settings = self._runnable, self._brokers, self._runnable.link.settings
        options = replace(
            options,
            set_headers=settings.set_headers,
            remove_headers=settings.remove_headers,
            rate_limit=runnable.rate_limit,
        )
        capture = brokers.capture(self._ends.source, up, link=runnable.link.id, options=options, is_quorum=is_quorum)
        self.flow = Flow(
            options, up=up, down=down, counts=runnable.counts, path=runnable.path, capture=capture, room=brokers.room
        )
        return self.flow

    @property
    def backlog(self) -> int | None:
        """The number of messages that wait; None if that isn't known."""
        return None if self._upkeep is None else self._upkeep.backlog

    @property
    def met(self) -> tuple[tuple[AmqpUri, str], ...]:
        """The URIs of the brokers that it is connected to, with the names of their clusters, if they give these."""
        there = (control.connection for control, _ in self._controls)
        return tuple((each.uri, each.cluster) for each in there if each.cluster is not None)

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        """The futures of which any that is done ends the link; its result is the error."""
        asked = [control.connection.wire.closed for control, _ in self._controls]
        return [*asked, *(self.flow.ends if self.flow else ())]

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """The error that ended the link, with its side."""
        for control, side in self._controls:
            if end is control.connection.wire.closed:
                error = end.result()
                error.side = error.side or side
                return error
        return self.flow.explain(end) if self.flow else end.result()

    async def leave(self, *, is_settled: bool) -> None:
        """Do what is left once the flow has left, and the connections are still there. With `is_settled` its messages
        had their time to be settled."""

    def follow(self) -> None:
        """Follow the bindings of the downstream object, which may have changed."""

    def is_quiet(self, now: float) -> bool:
        """True if nothing moved since the last tick, nothing waits, and nothing is due."""
        return self._upkeep is not None and self._upkeep.is_quiet(now)

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """Find what is due, once a second; return for how many seconds messages have waited and none was confirmed."""
        return 0.0 if self._upkeep is None else self._upkeep.tick(now, is_blocked=is_blocked)

    async def keep_up(self) -> None:
        """Do what `tick` and `follow` find to do, until cancelled or until a broker refuses something.

        If it returns, the link has done all that its definition asks for.
        """
        if self._upkeep is not None:
            await self._upkeep.run()


class KeptError(PermanentError):
    """Something that was to be deleted is kept for now, and may be deleted later."""


class InDoubtError(TransientError):
    """It can't be known now if messages wait in a queue."""


class Removing(Protocol):
    """The time between the end of a link's definition and the removal of what it built upstream."""

    messages: int | None
    looks: int

    @property
    def text(self) -> str:
        """The text for operators."""

    async def run(self) -> bool:
        """Wait until the removal is due; return True if it may remove messages, too."""


class Cleanup(Protocol):
    """Removes what a link built upstream."""

    def removing(self, *, cluster: str, since: float) -> Removing:
        """The wait before the removal. `cluster` is the downstream's name when the link became unwanted, at `since`."""

    async def remove(self, *, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:
        """Remove what the link built, as long as `still` returns True; return the error if something is left.

        Without `messages` only if none wait. KeptError says that nothing is removed for now, InDoubtError that it isn't
        known what waits.
        """


class RunnableLink(ABC, Generic[LinkT]):
    """One link as its kind runs it, with what one session learned for the next."""

    cleanup: Cleanup | None = None  # None: it leaves nothing behind, or nothing that is ever removed

    def __init__(self, kind: Kind[LinkT], link: LinkT, counts: Counts, on_noted: Callable[[], None]) -> None:
        """`on_noted` is called when `notes` may have changed while a session is open."""
        self.link = link
        self.rate_limit = link.settings.rate_limit  # may be replaced without another link
        self.brokers = kind.brokers
        self.counts = counts
        self.on_noted = on_noted
        self.bindings: frozenset[Binding] = frozenset()  # of the downstream object
        self.path = PathMemory()
        self.uri: AmqpUri | None = None  # the endpoint that it is connected to, or was last
        self.upstream_cluster: str | None = None  # the name that the upstream gave last, as it may be shown
        self.kind = kind

    @property
    def ends(self) -> Ends:
        return self.kind.ends(self.link)

    @property
    def bound(self) -> int:
        """The number of bindings that it has upstream."""
        return 0

    @property
    def known(self) -> Known | None:
        """The bindings that it has upstream; None if it keeps none there, or they aren't known now."""
        return None

    @property
    def remaining(self) -> int | None:
        """The number of messages that the next session is to move; None if the definition doesn't limit them."""
        return None

    @property
    def notes(self) -> str:
        """The text for operators about what it built; empty if all is as defined."""
        return ""

    def is_suspected(self, now: float) -> bool:
        """True if one of its messages may have made the downstream close a connection, so that it shares none."""
        return self.path.poison_search.watch(now) is not Watch.OFF

    def forget_after_other(self) -> None:
        """Note that someone else served the link since the last session: what exists for it may be different from what
        that session left."""

    def note_restart(self) -> None:
        """Note that an operator restarted the link."""

    @abstractmethod
    def inherit(self, former: RunnableLink[Any]) -> None:
        """Take over what the same link has learned and built under its former definition."""

    @abstractmethod
    def session(self, connections: Connections, *, dedicated: bool) -> Session[Any]:
        """A new session; `dedicated`: on connections that no other link uses."""

    async def is_free(self, queue: str) -> bool:
        """True if the queue has no consumer any more."""
        async with await self.brokers.control(self.ends.source) as control:
            return not await count_consumers(control.connection, queue)

    @abstractmethod
    def waits_in(self, vhost: str, /) -> str | None:
        """The queue in this vhost of its source that its messages wait in while it has no session; None if there is
        none."""


class Kind(ABC, Generic[LinkT]):
    """One kind of links for one agent; holds what all of them share."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers

    def ends(self, link: LinkT) -> Ends:
        """The brokers that its messages come from and go to."""
        return self.brokers.federation_ends(link)

    @abstractmethod
    def runnable(self, link: LinkT, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink[LinkT]: ...

    @abstractmethod
    def rewriter(self, link: LinkT, source: Connection, destination: Connection, /) -> Rewriter:
        """The changes that the link makes to messages between these connections."""

    @abstractmethod
    def destination(self, link: LinkT) -> Destination:
        """The exchange and routing key that its messages are published to."""
