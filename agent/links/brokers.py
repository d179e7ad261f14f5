"""What all links of an agent share: connections, the downstream's identity, time and chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.connect import Connection, connect_any
from agent.amqp.connection_pool import Pool, Shared
from agent.core.addresses.uri import AmqpUri
from agent.core.links.removal import CleanupAfter
from agent.core.model import Link
from agent.core.rules import names
from agent.downstream.reading import in_vhost
from agent.errors import Side, happening_on

DOWNSTREAM: Final = "downstream"
TRIAL: Final = names.AGENT_PREFIX + "trying an exchange type"
LINKS_PER_CONTROL: Final = 1_000


@dataclass
class Brokers:
    """`downstream` may change while links run; they have to be restarted then.

    `holds_removals`: whether nothing may be removed upstream now, since it isn't sure which links are defined.
    """

    downstream: tuple[AmqpUri, ...]
    cluster: str
    stall_after: float
    pool: Pool = field(default_factory=Pool)
    cleanup_after: CleanupAfter = field(default_factory=CleanupAfter)
    holds_removals: Callable[[], bool] = lambda: False
    _controls: Pool = field(default_factory=lambda: Pool(LINKS_PER_CONTROL))

    def endpoints(self, link: Link) -> tuple[AmqpUri, ...]:
        """The upstream's addresses; an empty host is the downstream itself, in the vhost that the URI names."""
        return tuple(
            each
            for uri in link.uris
            for each in (
                [in_vhost(own, uri.vhost(link.vhost)) for own in self.downstream] if uri.is_downstream_itself else [uri]
            )
        )

    async def control(self, link: Link) -> Shared:
        """Where upstream is asked things. No messages come that way, so it is read whatever the downstream takes."""
        return await self._controls.acquire(
            self._control_key(link), lambda: self._connect(link, _shuffled(self.endpoints(link)))
        )

    async def upstream(self, link: Link, uri: AmqpUri, *, apart: bool = False) -> Shared:
        """Where its messages come from: the broker that `control` is connected to, since what it serves stands there.

        `apart`: on a connection that no other link uses.
        """
        key = self._upstream_key(link, uri, apart=apart)
        return await self.pool.acquire(key, lambda: self._connect(link, [uri]))

    async def trial(self, link: Link, uri: AmqpUri) -> Connection:
        """A connection that may be lost."""
        return await self._connect(link, [uri], name=TRIAL)

    async def local(self, link: Link, *, apart: bool = False) -> Shared:
        name = names.connection(link.upstream, link.policy)
        with happening_on(Side.DOWNSTREAM):
            return await self.pool.acquire(
                self._local_key(link, apart=apart),
                lambda: connect_any(_shuffled(self._local_uris(link)), where=DOWNSTREAM, name=name),
            )

    def shown_certificates(self, link: Link) -> Iterator[tuple[Side, bytes]]:
        """What the brokers at both ends have shown, as DER, on the connections that the link may use."""
        for apart in (False, True):
            yield from _shown(Side.DOWNSTREAM, self.pool.standing(self._local_key(link, apart=apart)))
        yield from _shown(Side.UPSTREAM, self._controls.standing(self._control_key(link)))

    def _control_key(self, link: Link) -> Hashable:
        """Links whose names no broker can send in an error text may cost a connection: they share one of their own."""
        is_safe = names.can_be_declared(link.remote_name, link.vhost, link.name, self.cluster)
        return link.upstream, self.endpoints(link), link.vhost, is_safe

    def _upstream_key(self, link: Link, uri: AmqpUri, *, apart: bool) -> Hashable:
        return "upstream", self._control_key(link), uri, link.id if apart else None

    def _local_key(self, link: Link, *, apart: bool) -> Hashable:
        return "downstream", self._local_uris(link), link.id if apart else None

    def _local_uris(self, link: Link) -> tuple[AmqpUri, ...]:
        return tuple(in_vhost(uri, link.vhost) for uri in self.downstream)

    async def _connect(self, link: Link, uris: Sequence[AmqpUri], *, name: str = "") -> Connection:
        connection = await connect_any(
            uris,
            where=f"upstream {link.upstream}",
            name=name or names.connection(link.upstream, link.policy),
            default_vhost=link.vhost,
        )
        connection.wire.answers_while_blocked = True
        return connection


def _shown(side: Side, connections: Iterable[Connection]) -> Iterator[tuple[Side, bytes]]:
    for connection in connections:
        if (der := connection.wire.peer_certificate) is not None:
            yield side, der


def own_uri(link: Link, connection: Connection) -> AmqpUri:
    """Which of the link's addresses it is connected by; what stands for the downstream itself isn't one of them."""
    if connection.uri in link.uris:
        return connection.uri
    return next((uri for uri in link.uris if uri.is_downstream_itself), connection.uri)


def _shuffled(uris: Sequence[AmqpUri]) -> list[AmqpUri]:
    """Spreads links over interchangeable endpoints."""
    return random.sample(uris, len(uris))
