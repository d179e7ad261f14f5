"""Connections that many links share: a thousand links are not a thousand sockets.

Why: docs/decisions/0017-fair-shared-connections.md
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

from agent.amqp.connect import Connection
from agent.amqp.wire.channel import Channel
from agent.errors import BrokerError
from agent.tasks import GuardedTasks, UnexpectedErrors, retrieve

COUNTERS: Final = 4


class ChannelPool:
    """Channels of one connection, lent to one user at a time, so that an error that closes a channel belongs to that
    user's request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._free = asyncio.Semaphore(COUNTERS)
        self._idle: list[Channel] = []

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[Channel]:
        async with self._free:
            usable = [channel for channel in self._idle if channel.is_usable]
            channel = usable.pop() if usable else self._connection.wire.begin_channel()
            self._idle = usable
            with ExitStack() as unless_answered:
                unless_answered.callback(channel.leave)  # a late response may close it
                yield channel
                unless_answered.pop_all()
            self._idle.append(channel)


LINKS_PER_CONNECTION: Final = 250
REST: Final = 0.5  # after a failure, before the next attempt
CHANNELS_PER_LINK: Final = 4  # for its messages, and short-lived ones

Opener = Callable[[], Awaitable[Connection]]


@dataclass(eq=False)
class Shared:
    """One connection and how many use it. Use it with `async with`, or `release` it."""

    connection: Connection
    channels: ChannelPool
    users: int = 0
    is_left: bool = False
    on_left: Callable[[], None] = lambda: None

    async def release(self) -> None:
        """Remove one user. The last one closes the connection, and its pool no longer hands it out."""
        self.users -= 1
        if self.users == 0:
            self.is_left = True
            self.on_left()
            await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()


@dataclass
class _Group:
    """Connections to one endpoint, and the state of opening the next one."""

    open: list[Shared] = field(default_factory=list)
    opening: asyncio.Task[Shared] | None = None
    waiting: int = 0
    failure: BrokerError | None = None
    failed_at: float = 0.0

    def forget_left(self) -> None:
        self.open = [shared for shared in self.open if not shared.is_left and not shared.connection.is_closed]

    def is_needless(self, now: float) -> bool:
        """True if nobody uses or awaits the group, and it keeps no failure for users that arrive soon after."""
        is_resting = self.failure is not None and now - self.failed_at < REST
        return not (self.open or self.opening or self.waiting or is_resting)


class Pool:
    """Provides connections by endpoint; opens one if all others are full or closed. Users that arrive while one is
    being opened wait for it, and get the same error if it fails: a thousand links of an unreachable broker don't make a
    thousand attempts."""

    def __init__(self, per_connection: int = LINKS_PER_CONNECTION, *, errors: UnexpectedErrors | None = None) -> None:
        self._per_connection = per_connection
        self._groups: dict[Hashable, _Group] = {}
        self._tasks = GuardedTasks(errors or UnexpectedErrors())

    async def acquire(self, key: Hashable, opener: Opener) -> Shared:
        group = self._groups.get(key)
        if group is None:
            self._forget_all_needless()
            group = self._groups[key] = _Group()
        group.waiting += 1
        try:
            while (shared := self._with_room(group)) is None:
                if group.opening is None:
                    group.opening = asyncio.create_task(self._open(key, group, opener))
                    group.opening.add_done_callback(retrieve)
                opened = await asyncio.shield(group.opening)
                if opened.connection.is_closed:  # it was never used, and the next would end the same way
                    raise self._failed(group, opened.connection.wire.closed.result())
            shared.users += 1
            return shared
        finally:
            group.waiting -= 1
            if not group.waiting:
                self._clear(group)

    async def _open(self, key: Hashable, group: _Group, opener: Opener) -> Shared:
        loop = asyncio.get_running_loop()
        try:
            if group.failure is not None and loop.time() - group.failed_at < REST:
                raise group.failure.with_traceback(None)
            connection = await opener()
        except BrokerError as error:
            self._failed(group, error)
            raise
        else:
            opened = Shared(connection, ChannelPool(connection), on_left=lambda: self._forget_needless(key))
            group.open.append(opened)
            group.failure = None
            return opened
        finally:
            if group.opening is asyncio.current_task():
                group.opening = None

    def _failed(self, group: _Group, error: BrokerError) -> BrokerError:
        """Keep the error for users that arrive soon after."""
        if error is not group.failure:
            group.failure, group.failed_at = error, asyncio.get_running_loop().time()
        return error

    def _clear(self, group: _Group) -> None:
        """Drop what was opened for users that gave up: no user waits any more."""
        if group.opening is not None:
            group.opening.cancel()
            group.opening = None
        for shared in group.open:
            if not shared.users and not shared.is_left:
                shared.is_left = True
                self._tasks.once("close a connection", shared.connection.close())

    def _forget_all_needless(self) -> None:
        """Remove all groups that aren't needed. Links with their own connections have keys of their own, which nobody
        asks for again once such a link is gone. Keys are long, so only those that are found are looked up."""
        for key in [key for key, group in self._groups.items() if self._is_needless(group)]:
            del self._groups[key]

    def _forget_needless(self, key: Hashable) -> None:
        group = self._groups.get(key)
        if group is not None and self._is_needless(group):
            del self._groups[key]

    def _is_needless(self, group: _Group) -> bool:
        group.forget_left()
        return group.is_needless(asyncio.get_running_loop().time())

    def _with_room(self, group: _Group) -> Shared | None:
        group.forget_left()
        return next((shared for shared in group.open if shared.users < self._room(shared)), None)

    def rekey(self, successor: Callable[[Hashable], Hashable]) -> list[tuple[Hashable, Connection]]:
        """Move the open connections to the keys that `successor` returns; return those that moved, with their former
        keys."""
        moved = []
        for key, group in tuple(self._groups.items()):
            group.forget_left()
            now = successor(key)
            if now == key or not group.open:
                continue
            for shared in group.open:
                shared.on_left = partial(self._forget_needless, now)
                moved.append((key, shared.connection))
            self._groups.setdefault(now, _Group()).open += group.open
            group.open = []
            self._forget_needless(key)
        return moved

    def standing(self, key: Hashable) -> Iterator[Connection]:
        """The open connections to that endpoint."""
        group = self._groups.get(key, _Group())
        return (shared.connection for shared in group.open if not shared.connection.is_closed)

    def abort(self, error: BrokerError) -> None:
        """Abort all connections, without an AMQP close."""
        for group in self._groups.values():
            for shared in group.open:
                shared.connection.wire.abort(error)

    def _room(self, shared: Shared) -> int:
        """The number of links that fit: fewer if the broker allows few channels, none if some channel numbers can't be
        used again."""
        if shared.connection.wire.is_spoiled:
            return 0
        return max(1, min(self._per_connection, shared.connection.channel_max // CHANNELS_PER_LINK))
