"""Internal exchanges of the plugin's own type, where the broker over there knows it."""

from __future__ import annotations

import asyncio
from typing import Final

from agent.amqp.pool import Shared
from agent.amqp.upstream import declare_internal
from agent.core.fields import Table
from agent.core.model import Link
from agent.errors import BrokerError
from agent.runtime.world import World

ASK_AGAIN: Final = 15.0


class InternalExchanges:
    """Of one link, on a connection that it shares: what one finds out about the broker holds for all on it.

    A broker that was away may have come back as another release, or with another set of plugins.
    """

    def __init__(self, world: World, link: Link, up: Shared) -> None:
        self._world = world
        self._link = link
        self._up = up

    async def declare(self, name: str, native: Table) -> bool:
        """Answers whether it is of the plugin's type, which `native` are the arguments for."""
        up = self._up
        async with up.asking:
            if up.speaks_plugin is None:
                up.asked_at = asyncio.get_running_loop().time()
                if up.connection.server.outlives_unknown_types:
                    up.speaks_plugin = await declare_internal(up.connection, name, native=native)
                    return up.speaks_plugin
                up.speaks_plugin = await self._try(name, native)
        speaks = await declare_internal(up.connection, name, native=native if up.speaks_plugin else None)
        up.speaks_plugin = up.speaks_plugin and speaks
        return speaks

    async def is_type_known(self, name: str, native: Table) -> bool:
        """Whether the plugin is there yet; now and then one link asks for all, and some brokers hang up over it."""
        up, now = self._up, asyncio.get_running_loop().time()
        if up.speaks_plugin and now - up.asked_at >= ASK_AGAIN:
            up.asked_at = now
            try:
                up.speaks_plugin = await declare_internal(up.connection, name, native=native)
            except BrokerError:
                if up.connection.is_closed:
                    raise
                up.speaks_plugin = False
        return bool(up.speaks_plugin)

    async def _try(self, name: str, native: Table) -> bool:
        """On a connection of its own: an old broker closes it over a type that it doesn't know."""
        try:
            async with self._world.spare(self._link, self._up.connection) as connection:
                return await declare_internal(connection, name, native=native)
        except BrokerError:
            return False
