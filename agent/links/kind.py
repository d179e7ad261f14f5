"""What a kind of link offers. The runtime runs links through this and knows no kind; kinds don't know each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from agent.amqp.connect import Connection
from agent.amqp.data.delivery import Destination
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.core.addresses.uri import AmqpUri
from agent.core.links.reconcile import Known
from agent.core.model import Binding, Link
from agent.errors import BrokerError
from agent.links.connections import Connections
from agent.links.ends import Ends
from agent.links.flow import Flow

Link_contra = TypeVar("Link_contra", bound=Link, contravariant=True)


class Session(Protocol):
    """One link from its opening to its end. `open` comes first; it may raise BrokerError or ServedElsewhereError.

    The flow's `close` and `leave` come last, however far `open` came.
    """

    @property
    def flow(self) -> Flow | None:
        """Its messages; None before they may flow."""

    @property
    def backlog(self) -> int | None:
        """How many messages wait; None where that isn't known."""

    @property
    def met(self) -> tuple[tuple[AmqpUri, str], ...]:
        """The brokers that it is connected to, and their clusters' names where they tell these."""

    @property
    def ends(self) -> list[asyncio.Future[BrokerError]]:
        """What ends the link when it is done."""

    def explain(self, end: asyncio.Future[BrokerError]) -> BrokerError:
        """Why the link ended; the error has its side."""

    async def open(self) -> None:
        """Returns once messages flow."""

    def follow(self, bindings: frozenset[Binding]) -> None:
        """The bindings of the downstream object are these now."""

    def is_quiet(self, now: float) -> bool:
        """Nothing moved since the last tick, nothing waits, and nothing is due."""

    def tick(self, now: float, *, is_blocked: bool) -> float:
        """Called every second; answers for how many seconds messages have waited and none was confirmed."""

    async def keep_up(self) -> None:
        """Does what `tick` and `follow` find to do, until it is cancelled or a broker refuses something.

        Where it returns, the link has done all that its definition asks for.
        """


class Removing(Protocol):
    """The time between the end of a link's definition and the removal of what it built upstream."""

    messages: int | None
    looks: int

    @property
    def text(self) -> str:
        """What an operator is shown."""

    async def run(self) -> bool:
        """Until the removal is due; answers whether messages may wait in the queue even so."""


class RunnableLink(Protocol):
    """One link as its kind runs it, with what one session learned for the next."""

    @property
    def bound(self) -> int:
        """How many bindings it has upstream."""

    @property
    def known(self) -> Known | None:
        """What it has bound upstream, where it keeps bindings there and they are known now."""

    @property
    def remaining(self) -> int | None:
        """How many messages the next session is to move, where the definition limits them."""

    @property
    def notes(self) -> str:
        """What an operator should know of what it built; empty where all is as defined."""

    @property
    def uri(self) -> AmqpUri | None:
        """The endpoint that it is connected to, or was last."""

    @property
    def upstream_cluster(self) -> str | None:
        """The name that the upstream gave last, as it may be shown."""

    def inherit(self, former: RunnableLink) -> None:
        """Takes over what the same link has learned and built under its former definition."""

    def was_served_by_another(self) -> None:
        """Since the last session, whoever that was: what exists for the link may be other than that left it."""

    def is_suspected(self, now: float) -> bool:
        """Whether one of its messages may have made the downstream close a connection, so that it shares none."""

    def session(self, connections: Connections, bindings: Callable[[], frozenset[Binding]], *, apart: bool) -> Session:
        """`bindings` answers those of the downstream object; `apart`: on connections that no other link uses."""

    async def is_free(self, queue: str) -> bool:
        """Whether the queue has no consumer any more."""

    def waits_in(self, vhost: str) -> str | None:
        """The queue in this vhost of its source that its messages wait in while it has no session."""

    def removing(self, *, cluster: str, since: float) -> Removing:
        """`cluster` is the downstream's name when the link became unwanted, at `since`."""

    async def remove(self, *, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:
        """Removes what it built upstream, as long as it is `still` to be done; answers why something is left.

        Without `messages` only where none wait. KeptError says that nothing is removed for now, InDoubtError that it
        isn't known what waits.
        """


class Kind(Protocol[Link_contra]):
    """Makes links of one kind runnable; holds what all of them share."""

    def ends(self, link: Link_contra) -> Ends:
        """Where its messages come from and go to."""

    def runnable(self, link: Link_contra, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink:
        """`on_noted` is called when `notes` may have changed while a session is open."""

    def rewriter(self, link: Link_contra, source: Connection, destination: Connection) -> Rewriter:
        """What the link changes of messages on their way between these."""

    def destination(self, link: Link_contra) -> Destination:
        """Where its messages are published."""
