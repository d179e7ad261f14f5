"""Internal exchanges of the plugin's own type, if the upstream broker knows it.

Why: docs/decisions/0036-plugin-disabled-upstream.md
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from agent.amqp.connection_pool import Shared
from agent.amqp.declares import Opener
from agent.core.addresses.uri import AmqpUri
from agent.core.fields import Table
from agent.errors import BrokerError
from agent.links.exchange.upstream_objects import declare_internal


@dataclass
class TypeSupport:
    """Support for the plugin's type by the broker at the end of one connection; `is_known` is None until it was asked,
    at `asked_at`."""

    is_known: bool | None = None
    asked_at: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class PluginTypes:
    """Support for the plugin's type, by connection: what one link finds out holds for all links of that connection."""

    def __init__(self) -> None:
        self.endpoints: set[AmqpUri] = set()  # that knew the type last
        self._found: WeakKeyDictionary[Shared, TypeSupport] = WeakKeyDictionary()

    def of(self, control: Shared) -> TypeSupport:
        return self._found.setdefault(control, TypeSupport())


ASK_AGAIN: Final = 15.0


class InternalExchanges:
    """The internal exchanges of one link, on a connection that it shares: what one link finds out about the broker
    holds for all on it.

    A broker that was away may have come back as another release, or with another set of plugins.
    """

    def __init__(self, types: PluginTypes, control: Shared, *, spare: Opener) -> None:
        """`spare` opens a connection that may be lost."""
        self._types = types
        self._found = types.of(control)
        self._control = control
        self._spare = spare

    async def declare(self, name: str, native: Table) -> bool:
        """Declare an internal exchange; return True if it is of the plugin's type, whose arguments are `native`."""
        found = self._found
        async with found.asking:
            if found.is_known is None:
                found.asked_at = asyncio.get_running_loop().time()
                if self._may_be_asked:
                    return await self._ask(name, native)
                found.is_known = await self._try(name, native)
        speaks = await declare_internal(self._control.connection, name, native=native if found.is_known else None)
        found.is_known = found.is_known and speaks
        return speaks

    async def is_type_known(self, name: str, native: Table) -> bool:
        """True if the plugin is still there; now and then one link asks for all, over which some brokers close the
        connection."""
        found, now = self._found, asyncio.get_running_loop().time()
        if found.is_known and now - found.asked_at >= ASK_AGAIN:
            found.asked_at = now
            try:
                await self._ask(name, native)
            except BrokerError:
                if self._control.connection.is_closed:
                    raise
                found.is_known = False
        return bool(found.is_known)

    @property
    def _may_be_asked(self) -> bool:
        """True if the broker may be asked for the type on the shared connection: an old broker closes it over a type
        that it doesn't know. One that knew it is trusted once."""
        connection = self._control.connection
        return connection.server.outlives_unknown_types or connection.uri in self._types.endpoints

    async def _ask(self, name: str, native: Table) -> bool:
        connection, known = self._control.connection, self._types.endpoints
        known.discard(connection.uri)
        speaks = self._found.is_known = await declare_internal(connection, name, native=native)
        if speaks:
            known.add(connection.uri)
        return speaks

    async def _try(self, name: str, native: Table) -> bool:
        """Declare the internal exchange on a connection that may be lost; return True if it is of the plugin's type. If
        no connection is to be had, the type that every broker knows will do."""
        try:
            async with await self._spare() as connection:
                speaks = await declare_internal(connection, name, native=native)
        except BrokerError:
            return False
        if speaks:
            self._types.endpoints.add(self._control.connection.uri)
        return speaks
