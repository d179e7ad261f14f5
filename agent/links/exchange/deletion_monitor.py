"""Notices that an upstream exchange was deleted: over AMQP one that was created again looks like the former one.

A link keeps a `Canary` upstream, an exchange that is deleted with the upstream exchange. One `DeletionMonitor` looks at
what all links of a control connection keep there, every few seconds, at little cost.

Why: docs/decisions/0034-canary.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import structlog

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.failures import NOT_FOUND, PRECONDITION_FAILED, one_line
from agent.amqp.missing_exchanges import MissingExchanges
from agent.amqp.rpc import attempt, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.links.rounds import Once, Rounds
from agent.core.rules import names
from agent.errors import BrokerError
from agent.links.exchange.upstream_objects import delete_exchange
from agent.tasks import GuardedTasks, UnexpectedErrors

_FALLBACK = "bindings are bound again every 25 s instead, to notice that the upstream exchange was deleted"


@dataclass
class Canary:
    """The canary of one link: an auto-delete exchange whose only binding leads to the upstream exchange.

    When the upstream exchange is deleted, the binding goes, and the canary with it; re-creating the exchange doesn't
    bring it back. Nothing is published to it, so nothing reaches the upstream exchange that way.
    """

    connection: Connection
    exchange: str
    queue: str
    name: str | None = field(init=False)
    note: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.name = names.canary(self.exchange, self.queue, self.connection.vhost)

    @property
    def is_needless(self) -> bool:
        """True if nobody can delete the upstream exchange."""
        return names.is_permanent(self.exchange)

    async def place(self) -> bool:
        """Declare and bind the canary. Return True if a deletion of the upstream exchange shows from now on; if not,
        `note` has the reason, and is empty if the canary is needless.

        Raises BrokerError if the upstream exchange is missing.
        """
        self.note = ""
        if self.is_needless:
            return False
        if self.name is None:
            self.note = (
                f"the name of vhost {self.connection.vhost!r} is too long for the exchange that notices deletions: "
                f"{_FALLBACK}"
            )
            return False
        refused = await self._declare_and_bind(self.name)
        if refused is None:
            return True
        if refused.code == NOT_FOUND:
            raise refusal(self.connection, f"binding exchange {self.name!r} to {self.exchange!r}", refused)
        self.note = (
            f"{one_line(str(refused))}: {_FALLBACK}. Permissions that help: configure and read on "
            f"'^{names.AGENT_PREFIX}', write on {self.exchange!r}; then restart the link"
        )
        return False

    async def survived(self) -> bool:
        """True if the upstream exchange was not deleted since `place`; a canary that lost its binding is deleted.

        After a broker's restart a look isn't enough: a durable canary outlives an exchange that isn't durable, and a
        canary may exist unbound. The broker refuses to delete it only if it is bound.
        """
        if self.name is None:
            return False
        values = {"exchange": self.name, "if_unused": True}
        found = await attempt(self.connection, methods.EXCHANGE_DELETE, methods.EXCHANGE_DELETE_OK, **values)
        return isinstance(found, ChannelClosedError) and found.code == PRECONDITION_FAILED

    async def remove(self) -> None:
        if self.name is not None:
            await delete_exchange(self.connection, self.name)

    async def _declare_and_bind(self, name: str) -> ChannelClosedError | None:
        """Declare and bind the canary, with both requests sent at once on a separate channel, which a refusal closes;
        return the refusal, if any."""
        channel = self.connection.wire.begin_channel()
        attributes = {"type": "fanout", "durable": True, "auto_delete": True, "internal": True}
        declared = channel.ask(methods.EXCHANGE_DECLARE, methods.EXCHANGE_DECLARE_OK, exchange=name, **attributes)
        binding = {"destination": self.exchange, "source": name}
        bound = channel.ask(methods.EXCHANGE_BIND, methods.EXCHANGE_BIND_OK, **binding)
        try:
            await declared
            await bound
        except ChannelClosedError as error:
            if declared.exception() is None:
                await delete_exchange(self.connection, name)  # without a binding it would stay for good
            return error
        finally:
            channel.leave()
        return None


LOOK_EVERY: Final = 3.0
INTERNAL_EVERY: Final = 2  # rounds
FEW: Final = 100  # links that are all looked at in one round
MANY_EVERY: Final = 4  # rounds, for each of more links
MANY_INTERNAL_EVERY: Final = 8  # so that what happens to either is noticed within 30 s
PATIENCE: Final = 30.0
TASK: Final = "look at canaries"
DOUBTFUL_WITHIN: Final = 25.0  # seconds for all bindings that may be missing
DOUBTFUL_PER_SECOND: Final = 500.0  # at most: after an outage these may be all of a thousand links
PLACED_AT_ONCE: Final = 100  # canaries a round: a thousand links start sooner without, and then have theirs within 30 s

log = structlog.get_logger()


class MonitoredLink(Protocol):
    """A running link. It does what it is asked to do later, after its current work."""

    @property
    def canary(self) -> str | None:
        """The name of its canary, which is deleted with the upstream exchange; None if there is none."""

    @property
    def lacks_canary(self) -> bool:
        """True if a canary may be placed, and none was tried yet."""

    def place_canary(self) -> None:
        """Try to place its canary."""

    @property
    def internal(self) -> str | None:
        """The name of its internal exchange; None if it is too long to ask for."""

    @property
    def is_native(self) -> bool:
        """True if the internal exchange is of the federation plugin's type."""

    @property
    def assertable(self) -> int:
        """The number of bindings to assert in the background."""

    @property
    def doubtful(self) -> int:
        """The number of bindings that may be missing, and are asserted first."""

    def on_missing(self, name: str) -> None:
        """React to one of its exchanges that is missing."""

    def on_unknown_type(self) -> None:
        """React to the plugin's exchange type, which is no longer known there."""

    def assert_some(self, count: int) -> None:
        """Bind the next `count` bindings again."""

    async def is_type_known(self) -> bool:
        """True if the plugin's exchange type is known there; asks for it from time to time."""


class DeletionMonitor:
    """Looks at the exchanges of the links on one connection, while there are any."""

    def __init__(self, control: Shared, errors: UnexpectedErrors) -> None:
        self._tasks = GuardedTasks(errors)
        self._connection = control.connection
        self._exchanges = MissingExchanges(control.connection, control.channels)
        self._links: Rounds[MonitoredLink] = Rounds(lambda link: link.assertable)
        self._doubtful = Once(within=DOUBTFUL_WITHIN, per_second=DOUBTFUL_PER_SECOND)
        self._in_order: list[MonitoredLink] = []  # as `_links` is no order to take turns by: it turns itself
        self._task: asyncio.Task[None] | None = None
        self._round = 0

    @contextmanager
    def watching(self, link: MonitoredLink) -> Iterator[None]:
        self._links.add(link)
        self._in_order.append(link)
        if self._task is None:
            self._task = self._tasks.keep(TASK, self._run)
        try:
            yield
        finally:
            self._links.remove(link)
            self._in_order.remove(link)
            if not self._links and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        while not self._connection.is_closed:
            await asyncio.sleep(LOOK_EVERY)
            with self._tasks.errors.catching(TASK):
                await self._look_in_time()

    async def _look_in_time(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self.look(LOOK_EVERY)
        except (BrokerError, TimeoutError) as error:  # where the connection is lost, its links fail by themselves
            log.debug("exchanges not looked at", error=str(error))

    async def look(self, seconds: float) -> None:
        """Do one round, `seconds` after the last one."""
        self._round += 1
        for link in islice((link for link in self._links if link.lacks_canary), PLACED_AT_ONCE):
            link.place_canary()
        owners = self._owners()
        for name in await self._exchanges.among(list(owners)):
            owners[name].on_missing(name)
        await self._check_type()
        doubtful = self._doubtful.due(((link, link.doubtful) for link in self._in_order), seconds)
        for link, count in chain(doubtful, self._links.due(seconds)):
            link.assert_some(count)

    def _owners(self) -> dict[str, MonitoredLink]:
        """The names of the exchanges to look at in this round, each with its link. Of many links each has its turn less
        often, as a thousand of them would cost brokers a lot."""
        is_many = len(self._links) > FEW
        owners = {link.canary: link for link in self._turn(MANY_EVERY if is_many else 1)}
        every = MANY_INTERNAL_EVERY if is_many else INTERNAL_EVERY
        if is_many or self._round % every == 0:
            owners |= {link.internal: link for link in self._turn(every if is_many else 1)}
        return {name: link for name, link in owners.items() if name is not None}

    def _turn(self, every: int) -> Iterable[MonitoredLink]:
        return islice(self._in_order, self._round % every, None, every)

    async def _check_type(self) -> None:
        native = [link for link in self._links if link.is_native]
        if native and not await native[0].is_type_known():
            for link in native:
                link.on_unknown_type()


class DeletionMonitors:
    """The deletion monitors, one for each connection for requests to upstreams."""

    def __init__(self, errors: UnexpectedErrors) -> None:
        self._errors = errors
        self._monitors: WeakKeyDictionary[Shared, DeletionMonitor] = WeakKeyDictionary()

    def of(self, control: Shared) -> DeletionMonitor:
        return self._monitors.setdefault(control, DeletionMonitor(control, self._errors))
