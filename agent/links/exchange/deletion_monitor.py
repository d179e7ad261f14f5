"""Notices that an upstream exchange was deleted: over AMQP one that was created again looks like the former one.

A link keeps a `Canary` upstream, an exchange that is deleted with the upstream exchange. One `DeletionMonitor` looks at
what all links of a control connection keep there, every few seconds. It finds missing exchanges among very many, at a
few microseconds of the broker's time each, and asserts bindings again, a bounded number per second (`Rounds`).

Why: docs/decisions/0034-canary.md
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from math import ceil
from typing import Final, Generic, Protocol, TypeVar

import structlog

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import ChannelPool, Shared
from agent.amqp.failures import NOT_FOUND
from agent.amqp.rpc import refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import Channel, ChannelClosedError
from agent.errors import BrokerError
from agent.links.exchange.builder import Builder
from agent.tasks import GuardedTasks, UnexpectedErrors

ASSERTED_WITHIN: Final = 600.0  # seconds for all of them
ASSERTED_PER_SECOND: Final = 1.0  # at most, so very many take longer

Member = TypeVar("Member")


class Rounds(Generic[Member]):
    """Serves members in turn, each for the number of its bindings, `size`, before the next one."""

    def __init__(self, size: Callable[[Member], int]) -> None:
        self._size = size
        self._members: deque[Member] = deque()
        self._given = 0  # to the first of them, in its turn
        self._credit = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def add(self, member: Member) -> None:
        self._members.append(member)

    def remove(self, member: Member) -> None:
        if self._members[0] == member:
            self._given = 0
        self._members.remove(member)

    def due(self, seconds: float) -> list[tuple[Member, int]]:
        """The members whose bindings are due, `seconds` after the last call, each with a number of bindings."""
        total = sum(map(self._size, self._members))
        self._credit = min(
            self._credit + seconds * min(ASSERTED_PER_SECOND, total / ASSERTED_WITHIN),
            seconds * ASSERTED_PER_SECOND + 1,
        )
        found: list[tuple[Member, int]] = []
        for _ in range(len(self._members)):
            member = self._members[0]
            count = max(0, min(int(self._credit), self._size(member) - self._given))
            if count:
                found.append((member, count))
            self._credit -= count
            self._given += count
            if self._given < self._size(member):
                break
            self._members.rotate(-1)
            self._given = 0
        return found


class Once:
    """Shares out what is to be done once for each member, within some seconds or at a bounded rate."""

    def __init__(self, *, within: float, per_second: float) -> None:
        self._within = within
        self._per_second = per_second
        self._most = 0  # that there was to do, since there was nothing

    def due(self, left: Iterable[tuple[Member, int]], seconds: float) -> list[tuple[Member, int]]:
        """The members that are due, `seconds` after the last call, each with a number; `left` are the numbers that
        remain to be done."""
        left = [(member, count) for member, count in left if count]
        total = sum(count for _, count in left)
        self._most = max(self._most, total) if total else 0
        room = ceil(seconds * min(self._per_second, self._most / self._within))
        found: list[tuple[Member, int]] = []
        for member, count in left:
            if not room:
                break
            found.append((member, min(count, room)))
            room -= found[-1][1]
        return found


CHANNELS_AT_ONCE: Final = 32  # channels, if exchanges are missing
_WITHOUT_NAME = methods.EXCHANGE_DECLARE.encode(exchange="", type="fanout", passive=True, nowait=True)
_BEFORE_NAME, _AFTER_NAME = _WITHOUT_NAME[:6], _WITHOUT_NAME[7:]  # between them is the length of the name: 0

Names = Sequence[str]


class MissingExchanges:
    """Checks the same exchanges of one connection repeatedly.

    A passive declare with `nowait` is answered only if the exchange is missing: by an error that names it and closes
    the channel. The names after it are checked again, in halves, so that no name is sent more than a few times however
    many are missing. Don't ask for names that `core.rules.names` calls harmful: brokers from 4.0 on close the whole
    connection over them.
    """

    def __init__(self, connection: Connection, channels: ChannelPool) -> None:
        self._connection = connection
        self._channels = channels
        self._gate = asyncio.Semaphore(CHANNELS_AT_ONCE)

    async def among(self, names: Names) -> frozenset[str]:
        if not names:
            return frozenset()
        async with self._channels.borrow() as channel:
            found, rest = await self._look(channel, names)
        return found | await self._halves(rest)

    async def _halves(self, names: Names) -> frozenset[str]:
        if not names:
            return frozenset()
        middle = (len(names) + 1) // 2
        first, second = await asyncio.gather(self._on_own_channel(names[:middle]), self._on_own_channel(names[middle:]))
        return first | second

    async def _on_own_channel(self, names: Names) -> frozenset[str]:
        if not names:
            return frozenset()
        async with self._gate:
            channel = self._connection.wire.begin_channel()
            try:
                found, rest = await self._look(channel, names)
            finally:
                channel.leave()
        return found | await self._halves(rest)

    async def _look(self, channel: Channel, names: Names) -> tuple[frozenset[str], Names]:
        """Return the first missing exchange, if any, and the names that still have to be checked. If the error doesn't
        show which one is missing, all names have to be checked again. The broker works in order, so once it has
        answered for the last name it has checked the others, too."""
        channel.send_encoded(_encode(name) for name in names[:-1])
        try:
            await channel.ask(methods.EXCHANGE_DECLARE, exchange=names[-1], type="fanout", passive=True)
        except ChannelClosedError as error:
            if error.code != NOT_FOUND:
                raise refusal(self._connection, "looking for exchanges", error) from error
            return _culprit(error.failure.object, names)
        return frozenset(), ()


def _encode(name: str) -> bytes:
    """Encode the declare by hand: it is the most frequent of all methods while no messages pass a thousand links."""
    encoded = name.encode("utf-8", "surrogateescape")
    return b"%b%c%b%b" % (_BEFORE_NAME, len(encoded), encoded, _AFTER_NAME)


def _culprit(missing: str, names: Names) -> tuple[frozenset[str], Names]:
    """`missing` is empty if a long name left no room to show it."""
    if missing in names:
        at = names.index(missing)
    elif len(names) == 1:
        at = 0
    else:
        return frozenset(), names  # one of them, and the halves show which
    return frozenset({names[at]}), names[at + 1 :]


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
