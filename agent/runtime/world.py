"""What all links of an agent share: connections, the downstream's identity, time and chance."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from agent.amqp.connect import Connection, connect_any
from agent.amqp.pool import Pool, Shared
from agent.core import names
from agent.core.lifecycle import Side
from agent.core.model import Link
from agent.core.uri import AmqpUri
from agent.runtime.downstream import in_vhost
from agent.runtime.spare import Spare

DOWNSTREAM: Final = "downstream"
TRIAL: Final = names.AGENT_PREFIX + "trying an exchange type"


@dataclass
class World:
    """`downstream` may change while links run; they have to be restarted then."""

    downstream: tuple[AmqpUri, ...]
    cluster: str
    stall_after: float
    pool: Pool = field(default_factory=Pool)
    _modern: set[tuple[AmqpUri, ...]] = field(default_factory=set)
    _spares: WeakKeyDictionary[Connection, Spare] = field(default_factory=WeakKeyDictionary)

    def endpoints(self, link: Link) -> tuple[AmqpUri, ...]:
        """The upstream's addresses; an empty host is the downstream itself, in the vhost that the URI names."""
        return tuple(
            each
            for uri in link.uris
            for each in (
                [in_vhost(own, uri.vhost(link.vhost)) for own in self.downstream] if uri.is_downstream_itself else [uri]
            )
        )

    async def upstream(self, link: Link, *, apart: bool = False) -> Shared:
        """`apart`: on a connection that no other link uses."""
        name = names.connection(link.upstream, link.policy)
        return await self.pool.acquire(self._upstream_key(link, apart=apart), lambda: self._open_upstream(link, name))

    async def local(self, link: Link, *, apart: bool = False) -> Shared:
        name = names.connection(link.upstream, link.policy)
        return await self.pool.acquire(
            self._local_key(link, apart=apart),
            lambda: connect_any(_shuffled(self._local_uris(link)), where=DOWNSTREAM, name=name),
        )

    def shown_certificates(self, link: Link) -> Iterator[tuple[Side, bytes]]:
        """What the brokers at both ends have shown, as DER, on the connections that the link may use."""
        for apart in (False, True):
            keys = {
                Side.UPSTREAM: self._upstream_key(link, apart=apart),
                Side.DOWNSTREAM: self._local_key(link, apart=apart),
            }
            for side, key in keys.items():
                for connection in self.pool.standing(key):
                    if (der := connection.wire.peer_certificate) is not None:
                        yield side, der

    def _upstream_key(self, link: Link, *, apart: bool) -> Hashable:
        return "upstream", link.upstream, self.endpoints(link), link.vhost, link.id if apart else None

    def _local_key(self, link: Link, *, apart: bool) -> Hashable:
        return "downstream", self._local_uris(link), link.id if apart else None

    def _local_uris(self, link: Link) -> tuple[AmqpUri, ...]:
        return tuple(in_vhost(uri, link.vhost) for uri in self.downstream)

    def spare(self, link: Link, beside: Connection) -> Spare:
        """A connection to the same upstream that may be lost."""
        return self._spares.pop(beside, None) or Spare(self._connect(link, TRIAL))

    async def _open_upstream(self, link: Link, name: str) -> Connection:
        """With a spare one, opened at the same time: a far upstream's handshake takes long."""
        endpoints = self.endpoints(link)
        if endpoints in self._modern:
            return await self._connect(link, name)
        spare = Spare(self._connect(link, TRIAL))
        with ExitStack() as unless_connected:
            unless_connected.callback(spare.discard)
            connection = await self._connect(link, name)
            unless_connected.pop_all()
        self._spares[connection] = spare
        connection.wire.closed.add_done_callback(lambda _: spare.discard())
        if connection.server.outlives_unknown_types:
            self._modern.add(endpoints)
            spare.discard()
        return connection

    async def _connect(self, link: Link, name: str) -> Connection:
        where = f"upstream {link.upstream}"
        uris = _shuffled(self.endpoints(link))
        return await connect_any(uris, where=where, name=name, default_vhost=link.vhost)


def _shuffled(uris: Sequence[AmqpUri]) -> list[AmqpUri]:
    """Spreads links over interchangeable endpoints."""
    return random.sample(uris, len(uris))
