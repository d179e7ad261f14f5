"""Connections that many links share: a thousand links are not a thousand sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.connect import Connection

LINKS_PER_CONNECTION: Final = 250
CHANNELS_PER_LINK: Final = 4  # messages, bindings, and questions that come and go

Opener = Callable[[], Awaitable[Connection]]


@dataclass(eq=False)
class Shared:
    """One connection and how many use it; `speaks_plugin` is what was found out about the broker behind it."""

    connection: Connection
    users: int = 0
    speaks_plugin: bool | None = None
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _Group:
    open: list[Shared] = field(default_factory=list)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pool:
    """Hands out connections by what they lead to; one is opened where all others are full or gone."""

    def __init__(self, per_connection: int = LINKS_PER_CONNECTION) -> None:
        self._per_connection = per_connection
        self._groups: dict[Hashable, _Group] = {}

    async def acquire(self, key: Hashable, opener: Opener) -> Shared:
        group = self._groups.setdefault(key, _Group())
        async with group.opening:
            group.open = [shared for shared in group.open if shared.users and not shared.connection.is_closed]
            shared = next((one for one in group.open if one.users < self._room(one)), None)
            if shared is None:
                shared = Shared(await opener())
                group.open.append(shared)
            shared.users += 1
            return shared

    def standing(self, key: Hashable) -> Iterator[Connection]:
        """The open connections that lead there."""
        group = self._groups.get(key, _Group())
        return (shared.connection for shared in group.open if not shared.connection.is_closed)

    async def release(self, shared: Shared) -> None:
        """The last one closes the door; nobody is let in through it any more."""
        shared.users -= 1
        if shared.users == 0:
            await shared.connection.close()

    def _room(self, shared: Shared) -> int:
        """How many links fit; a broker may allow few channels, and some may be lost for good."""
        if shared.connection.wire.is_spoiled:
            return 0
        return max(1, min(self._per_connection, shared.connection.channel_max // CHANNELS_PER_LINK))
