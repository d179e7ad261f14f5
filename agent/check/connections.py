"""The brokers that a configuration names: the ends of its links, and what is judged of a connection to each address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.amqp.connect import Connection, connect
from agent.check.findings import Finding, Topic
from agent.core.addresses.expiry import certificate_expiry, token_expiry
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.links.plan import PlannedLink
from agent.core.model import Definitions, Link, ShovelLink
from agent.errors import BrokerError
from agent.links.ends import DOWNSTREAM, reachable
from agent.network import read_certificates

PATIENCE: Final = 10.0  # seconds for one address
AT_ONCE: Final = 50  # connections
CONNECTION_NAME: Final = "federation-agent: check"
SOURCE: Final = "shovel source"
DESTINATION: Final = "shovel destination"
DEFAULT_VHOST: Final = "/"
DAY: Final = 86_400.0
SOON: Final = 30 * DAY
LARGEST_CLOCK_DIFFERENCE: Final = 5.0
FEW_CHANNELS: Final = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One broker in one role: `uris` are interchangeable. `where` leads all that is reported of it."""

    where: str
    default_vhost: str
    uris: tuple[AmqpUri, ...]
    upstream: str = ""  # the name of the upstream, where the role is one

    @property
    def accounts(self) -> tuple[tuple[str, str], ...]:
        """The users and vhosts that its addresses name. The user of a client certificate isn't known here."""
        found = ((uri.login[0], uri.vhost(self.default_vhost)) for uri in self.uris if not _by_certificate(uri))
        return tuple(dict.fromkeys(found))

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(map(address, self.uris))

    @property
    def first(self) -> str:
        """The first address, as findings name it."""
        return named(self, self.uris[0])


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """A link that should exist, and its two brokers."""

    planned: PlannedLink
    source: Endpoint
    destination: Endpoint

    @property
    def link(self) -> Link:
        return self.planned.link

    @property
    def label(self) -> str:
        return f"{self.link.vhost}/{self.link.name}"


@dataclass(frozen=True, slots=True)
class Expiring:
    """A certificate or token and when it expires, in seconds since 1970."""

    what: str
    at: float


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The facts that a broker shows when a connection opens. `frame_max` 0 is no limit."""

    where: str
    vhost: str
    user: str
    version: str
    cluster: str | None
    frame_max: int
    channel_max: int
    limits_deliveries: bool = False
    asks_for_configure: bool = False
    is_encrypted: bool = False
    is_verified: bool = False
    certificates: tuple[Expiring, ...] = ()
    blocked: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One address that was tried, with the `broker` that answered or the `error`."""

    endpoint: Endpoint
    uri: AmqpUri
    broker: BrokerFacts | None = None
    error: BrokerError | None = None

    @property
    def where(self) -> str:
        return named(self.endpoint, self.uri)


def address(uri: AmqpUri) -> str:
    return f"{uri.connect_host}:{uri.connect_port}"


def named(endpoint: Endpoint, uri: AmqpUri) -> str:
    return f"{endpoint.where} {uri.host}:{uri.connect_port}"


def upstream(name: str, vhost: str, uris: Sequence[AmqpUri], downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(f"upstream {name}", vhost, reachable(uris, vhost, downstream), name)


def shovel_end(where: str, uris: Sequence[AmqpUri], downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(where, DEFAULT_VHOST, reachable(uris, DEFAULT_VHOST, downstream))


def downstream_in(vhost: str, downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(DOWNSTREAM, vhost, tuple(uri.in_vhost(vhost) for uri in downstream))


def ends_of(planned: PlannedLink, downstream: Sequence[AmqpUri]) -> LinkEnds:
    link = planned.link
    if isinstance(link, ShovelLink):
        source = shovel_end(SOURCE, link.shovel.source_uris, downstream)
        return LinkEnds(planned, source, shovel_end(DESTINATION, link.shovel.destination_uris, downstream))
    source = upstream(link.upstream, link.vhost, link.uris, downstream)
    return LinkEnds(planned, source, downstream_in(link.vhost, downstream))


def endpoints_of(definitions: Definitions, downstream: Sequence[AmqpUri]) -> Iterator[Endpoint]:
    """Some may be repeated."""
    for vhost in dict.fromkeys(uri.vhost(DEFAULT_VHOST) for uri in downstream):
        yield downstream_in(vhost, downstream)
    for vhost, found in definitions.vhosts.items():
        if found.upstreams or found.exchanges or found.policies:
            yield downstream_in(vhost, downstream)
        for each in found.upstreams.values():
            yield upstream(each.name, vhost, each.uris, downstream)
        for shovel in found.shovels.values():
            yield shovel_end(SOURCE, shovel.source_uris, downstream)
            yield shovel_end(DESTINATION, shovel.destination_uris, downstream)


async def try_all(endpoints: Iterable[Endpoint]) -> list[Attempt]:
    """Connect to every address of each endpoint, and close the connection."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(endpoint: Endpoint, uri: AmqpUri) -> Attempt:
        async with gate:
            return await _try(endpoint, uri)

    unique = dict.fromkeys(endpoints)
    return await asyncio.gather(*(one(endpoint, uri) for endpoint in unique for uri in endpoint.uris))


async def _try(endpoint: Endpoint, uri: AmqpUri) -> Attempt:
    where, vhost = endpoint.where, endpoint.default_vhost
    try:
        connection = await connect(uri, where=where, name=CONNECTION_NAME, default_vhost=vhost, within=PATIENCE)
    except BrokerError as error:
        return Attempt(endpoint, uri, error=error)
    async with connection:
        return Attempt(endpoint, uri, await _facts(connection, uri))


async def _facts(connection: Connection, uri: AmqpUri) -> BrokerFacts:
    server = connection.server
    return BrokerFacts(
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
        certificates=tuple([each async for each in _expiring(connection, uri)]),
        blocked=connection.blocked,
    )


async def _expiring(connection: Connection, uri: AmqpUri) -> AsyncIterator[Expiring]:
    shown = connection.wire.peer_certificate
    found = [("the server's certificate", shown)] if shown else []
    if uri.tls is not None:
        files = (("the client certificate", uri.tls.certfile), ("an authority in", uri.tls.cacertfile))
        for what, file in files:
            found += [(f"{what} {file}", each) for each in (await read_certificates(file) if file is not None else ())]
    for what, der in found:
        try:
            yield Expiring(what, certificate_expiry(der))
        except ValueError:
            continue
    end = None if uri.password is None else token_expiry(uri.password.reveal())
    if end is not None:
        yield Expiring("the token in the URI", end)


def _by_certificate(uri: AmqpUri) -> bool:
    return uri.mechanisms == (Mechanism.EXTERNAL,)


def judge_broker(broker: BrokerFacts, now: float) -> Iterator[Finding]:
    for each in broker.certificates:
        days = (each.at - now) / DAY
        if days < 0:
            yield Finding.error(Topic.TLS, broker.where, f"{each.what} expired {-days:.0f} days ago", "renew it")
        elif each.at - now < SOON:
            yield Finding.warning(Topic.TLS, broker.where, f"{each.what} expires in {days:.1f} days", "renew it")
    if broker.is_encrypted and not broker.is_verified:
        yield Finding.warning(
            Topic.TLS,
            broker.where,
            "the server's certificate is not verified, so anybody on the way can read and change messages",
            "write verify=verify_peer and cacertfile=… in its URI",
        )
    if broker.blocked is not None:
        message = f"the broker accepts no messages now: {broker.blocked}"
        yield Finding.warning(Topic.ALARM, broker.where, message, "see `rabbitmq-diagnostics alarms` there")
    if 0 < broker.channel_max < FEW_CHANNELS:
        message = f"only {broker.channel_max} channels a connection: links open one connection after the other"
        yield Finding.warning(Topic.LIMITS, broker.where, message, "raise channel_max there, or in the URI")
    if not broker.version:
        yield Finding.note(Topic.RELEASE, broker.where, "the broker doesn't show its release")


def judge_pair(source: BrokerFacts, destination: BrokerFacts) -> Iterator[Finding]:
    """Judge the limits of two brokers that a link connects."""
    where = f"{source.where} → {destination.where}"
    if destination.frame_max and (not source.frame_max or destination.frame_max < source.frame_max):
        yield Finding.note(
            Topic.LIMITS,
            where,
            f"frames of {destination.frame_max} bytes at the destination, {source.frame_max or 'any number of'} at the "
            "source: headers that fit no frame go to the quarantine",
        )
    before, after = _max_message_mib(source), _max_message_mib(destination)
    if after < before:
        yield Finding.note(
            Topic.LIMITS,
            where,
            f"by default the destination ({destination.version}) takes messages of up to {after} MiB, the "
            f"source ({source.version}) of up to {before} MiB: larger ones go to the quarantine. Brokers don't "
            "show their max_message_size",
            "set max_message_size of the destination to that of the source",
        )


def _max_message_mib(broker: BrokerFacts) -> int:
    """The default of max_message_size: 128 MiB, and 16 MiB since 4.0."""
    return 16 if broker.limits_deliveries else 128


def judge_clock(where: str, difference: float) -> Iterator[Finding]:
    """`difference` is how far the broker's clock is ahead, in seconds; HTTP shows it in whole ones."""
    if abs(difference) > LARGEST_CLOCK_DIFFERENCE:
        direction = "ahead of" if difference > 0 else "behind"
        yield Finding.warning(
            Topic.CLOCK,
            where,
            f"its clock is {abs(difference):.0f} s {direction} this machine's: times in logs, reports and headers "
            "don't agree, and certificates and tokens may count as expired",
            "run NTP on both machines",
        )
