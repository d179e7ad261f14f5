"""Notices that an upstream exchange was deleted: over AMQP one that was created again looks like the former one.

A link keeps a `Canary` upstream, an exchange that is deleted with the upstream exchange. One `DeletionMonitor` looks at
what all links of a control connection keep there, every few seconds, at little cost.

Why: docs/decisions/0034-canary.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Final, Protocol

import structlog

from agent.amqp.connection_pool import Shared
from agent.amqp.missing_exchanges import MissingExchanges
from agent.core.links.rounds import Once, Rounds
from agent.errors import BrokerError
from agent.links.exchange.builder import Builder
from agent.tasks import GuardedTasks, UnexpectedErrors

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
    def building(self) -> Builder:
        """The builder of what it keeps upstream."""

    def place_canary(self) -> None:
        """Try to place its canary."""

    def on_missing(self, name: str) -> None:
        """React to one of its exchanges that is missing."""

    def on_unknown_type(self) -> None:
        """React to the plugin's exchange type, which is no longer known there."""

    def assert_some(self, count: int) -> None:
        """Bind the next `count` bindings again."""


class DeletionMonitor:
    """Looks at the exchanges of the links on one connection, while there are any."""

    def __init__(self, control: Shared, errors: UnexpectedErrors) -> None:
        self._tasks = GuardedTasks(errors)
        self._connection = control.connection
        self._exchanges = MissingExchanges(control.connection, control.channels)
        self._links: Rounds[MonitoredLink] = Rounds(lambda link: link.building.assertable)
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
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self.look(LOOK_EVERY)
                except (BrokerError, TimeoutError) as error:  # a lost connection's links fail by themselves
                    log.debug("exchanges not looked at", error=str(error))

    async def look(self, seconds: float) -> None:
        """Do one round, `seconds` after the last one."""
        self._round += 1
        for link in islice((link for link in self._links if link.building.lacks_canary), PLACED_AT_ONCE):
            link.place_canary()
        owners = self._owners()
        for name in await self._exchanges.among(list(owners)):
            owners[name].on_missing(name)
        await self._check_type()
        doubtful = self._doubtful.due(((link, link.building.doubtful) for link in self._in_order), seconds)
        for link, count in chain(doubtful, self._links.due(seconds)):
            link.assert_some(count)

    def _owners(self) -> dict[str, MonitoredLink]:
        """The names of the exchanges to look at in this round, each with its link. Of many links each has its turn less
        often, as a thousand of them would cost brokers a lot."""
        is_many = len(self._links) > FEW
        owners = {link.building.canary: link for link in self._turn(MANY_EVERY if is_many else 1)}
        every = MANY_INTERNAL_EVERY if is_many else INTERNAL_EVERY
        if is_many or self._round % every == 0:
            owners |= {link.building.internal: link for link in self._turn(every if is_many else 1)}
        return {name: link for name, link in owners.items() if name is not None}

    def _turn(self, every: int) -> Iterable[MonitoredLink]:
        return islice(self._in_order, self._round % every, None, every)

    async def _check_type(self) -> None:
        native = [link for link in self._links if link.building.is_native]
        if native and not await native[0].building.is_type_known():
            for link in native:
                link.on_unknown_type()
