"""Opens a connection to every address that a configuration names, and notes what the broker shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.amqp.connect import Connection, connect
from agent.check.releases import Certified, Opened
from agent.core.addresses import certificate, token
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.model import Definitions
from agent.errors import BrokerError
from agent.links.ends import DOWNSTREAM, reachable
from agent.network import read_certificates

PATIENCE: Final = 10.0  # seconds for one address
AT_ONCE: Final = 50  # connections
CONNECTION_NAME: Final = "federation-agent: check"
SOURCE: Final = "shovel source"
DESTINATION: Final = "shovel destination"
DEFAULT_VHOST: Final = "/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One broker in one role: `uris` are interchangeable. `where` leads all that is reported of it."""

    where: str
    default_vhost: str
    uris: tuple[AmqpUri, ...]

    @property
    def accounts(self) -> tuple[tuple[str, str], ...]:
        """The users and vhosts that its addresses name. The user of a client certificate isn't known here."""
        found = ((uri.login[0], uri.vhost(self.default_vhost)) for uri in self.uris if not _by_certificate(uri))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Tried:
    """`opened`, or the `error`."""

    endpoint: Endpoint
    uri: AmqpUri
    opened: Opened | None = None
    error: BrokerError | None = None

    @property
    def where(self) -> str:
        return f"{self.endpoint.where} {self.uri.host}:{self.uri.connect_port}"


def upstream(name: str, vhost: str, uris: Sequence[AmqpUri], downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(f"upstream {name}", vhost, reachable(uris, vhost, downstream))


def shovel_end(where: str, uris: Sequence[AmqpUri], downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(where, DEFAULT_VHOST, reachable(uris, DEFAULT_VHOST, downstream))


def beside(vhost: str, downstream: Sequence[AmqpUri]) -> Endpoint:
    """The downstream, in a vhost with links."""
    return Endpoint(DOWNSTREAM, vhost, tuple(uri.in_vhost(vhost) for uri in downstream))


def endpoints_of(definitions: Definitions, downstream: Sequence[AmqpUri]) -> tuple[Endpoint, ...]:
    return tuple(dict.fromkeys(_endpoints(definitions, downstream)))


def _endpoints(definitions: Definitions, downstream: Sequence[AmqpUri]) -> Iterator[Endpoint]:
    for vhost in dict.fromkeys(uri.vhost(DEFAULT_VHOST) for uri in downstream):
        yield beside(vhost, downstream)
    for vhost, found in definitions.vhosts.items():
        if found.upstreams or found.exchanges or found.policies:
            yield beside(vhost, downstream)
        for each in found.upstreams.values():
            yield upstream(each.name, vhost, each.uris, downstream)
        for shovel in found.shovels.values():
            yield shovel_end(SOURCE, shovel.source_uris, downstream)
            yield shovel_end(DESTINATION, shovel.destination_uris, downstream)


async def try_all(endpoints: Iterable[Endpoint]) -> list[Tried]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(endpoint: Endpoint, uri: AmqpUri) -> Tried:
        async with gate:
            return await _try(endpoint, uri)

    return await asyncio.gather(*(one(endpoint, uri) for endpoint in endpoints for uri in endpoint.uris))


async def _try(endpoint: Endpoint, uri: AmqpUri) -> Tried:
    try:
        connection = await connect(
            uri,
            where=endpoint.where,
            name=CONNECTION_NAME,
            default_vhost=endpoint.default_vhost,
            within=PATIENCE,
        )
    except BrokerError as error:
        return Tried(endpoint, uri, error=error)
    async with connection:
        return Tried(endpoint, uri, await _shown(connection, uri))


async def _shown(connection: Connection, uri: AmqpUri) -> Opened:
    server = connection.server
    return Opened(
        where=connection.where,
        vhost=connection.vhost,
        user="" if _by_certificate(uri) else uri.login[0],
        version=server.version,
        cluster=server.cluster_name,
        frame_max=connection.wire.frame_max,
        channel_max=connection.wire.channel_max,
        limits_deliveries=server.limits_deliveries,
        asks_for_configure=server.forgives_nacks,  # both since 4.3
        is_encrypted=uri.tls is not None,
        is_verified=uri.tls is not None and uri.tls.verify,
        certificates=tuple([each async for each in _certificates(connection, uri)]),
        blocked=connection.blocked,
    )


async def _certificates(connection: Connection, uri: AmqpUri) -> AsyncIterator[Certified]:
    shown = connection.wire.peer_certificate
    for found in _ends("the server's certificate", [shown] if shown else []):
        yield found
    if uri.tls is not None and uri.tls.certfile is not None:
        for found in _ends(f"the client certificate {uri.tls.certfile}", await read_certificates(uri.tls.certfile)):
            yield found
    if uri.tls is not None and uri.tls.cacertfile is not None:
        for found in _ends(f"an authority in {uri.tls.cacertfile}", await read_certificates(uri.tls.cacertfile)):
            yield found
    end = None if uri.password is None else token.expiry(uri.password.reveal())
    if end is not None:
        yield Certified("the token in the URI", end)


def _ends(what: str, certificates: Iterable[bytes]) -> Iterator[Certified]:
    for der in certificates:
        try:
            yield Certified(what, certificate.not_after(der))
        except ValueError:
            continue


def _by_certificate(uri: AmqpUri) -> bool:
    return uri.mechanisms == (Mechanism.EXTERNAL,)
