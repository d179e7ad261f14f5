"""What all links of an agent share: connections, the downstream's identity, time and chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent.amqp.connect import Connection, connect_any
from agent.amqp.pool import Pool, Shared
from agent.amqp.upstream import declare_internal, delete_exchange
from agent.core import names
from agent.core.fields import Table
from agent.core.model import Link
from agent.core.uri import AmqpUri
from agent.core.url_text import encode
from agent.errors import BrokerError

DOWNSTREAM: Final = "downstream"
TRIAL: Final = names.AGENT_PREFIX + "trial"


@dataclass
class World:
    """`speaks_plugin` remembers, by endpoint, whether brokers there know the plugin's own exchange type."""

    downstream: tuple[AmqpUri, ...]
    cluster: str
    pool: Pool = field(default_factory=Pool)
    speaks_plugin: dict[tuple[AmqpUri, ...], bool] = field(default_factory=dict)

    def endpoints(self, link: Link) -> tuple[AmqpUri, ...]:
        """The upstream's addresses; an empty host is the downstream itself, in the vhost that the URI names."""
        return tuple(
            replace(self.downstream[0], path="/" + encode(uri.vhost(link.vhost))) if uri.is_downstream_itself else uri
            for uri in link.uris
        )

    async def upstream(self, link: Link) -> Shared:
        uris = self.endpoints(link)
        where = f"upstream {link.upstream}"
        name = names.connection(link.upstream, link.policy)
        return await self.pool.acquire(
            ("upstream", uris, link.vhost),
            lambda: connect_any(_shuffled(uris), where=where, name=name, default_vhost=link.vhost),
        )

    async def local(self, link: Link) -> Shared:
        name = names.connection(link.upstream, link.policy)
        uris = tuple(replace(uri, path="/" + encode(link.vhost)) for uri in self.downstream)
        return await self.pool.acquire(
            ("downstream", link.vhost), lambda: connect_any(_shuffled(uris), where=DOWNSTREAM, name=name)
        )

    async def knows_plugin(self, link: Link, native: Table) -> bool:
        """Asked once, on a connection of its own: an old broker closes it over a type that it doesn't know."""
        uris = self.endpoints(link)
        if uris not in self.speaks_plugin:
            self.speaks_plugin[uris] = await self._try_type(link, native)
        return self.speaks_plugin[uris]

    async def _try_type(self, link: Link, native: Table) -> bool:
        connection: Connection = await connect_any(
            _shuffled(self.endpoints(link)), where=f"upstream {link.upstream}", name=TRIAL, default_vhost=link.vhost
        )
        name = f"{TRIAL} {random.getrandbits(64):016x}"
        async with connection:
            try:
                known = await declare_internal(connection, name, native=native)
            except BrokerError:
                return False
            await delete_exchange(connection, name)
            return known


def _shuffled(uris: Sequence[AmqpUri]) -> list[AmqpUri]:
    """Spreads links over interchangeable endpoints."""
    return random.sample(uris, len(uris))
