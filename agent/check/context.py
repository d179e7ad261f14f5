"""The context that all checks share: the ends of links, the addresses that work, the HTTP APIs that can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.links.plan import PlannedLink
from agent.core.model import (
    DEFAULT_VHOST,
    AddressDestination,
    AddressSource,
    Definitions,
    Link,
    Shovel,
    ShovelLink,
    ShovelPlace,
)
from agent.errors import BrokerError
from agent.links.ends import DOWNSTREAM, reachable

SOURCE: Final = "shovel source"
DESTINATION: Final = "shovel destination"
RABBITMQ: Final = "RabbitMQ"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One broker in one role: `uris` are interchangeable. `where` leads all that is reported of it."""

    where: str
    default_vhost: str
    uris: tuple[AmqpUri, ...]
    upstream: str = ""  # the name of the upstream, where the role is one
    is_amqp10: bool = False  # the agent speaks AMQP 1.0 with it

    @property
    def accounts(self) -> tuple[tuple[str, str], ...]:
        """The users and vhosts that its addresses name. The user of a client certificate isn't known here."""
        found = ((uri.login[0], uri.vhost(self.default_vhost)) for uri in self.uris if not is_by_certificate(uri))
        return tuple(dict.fromkeys(found))

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(map(address, self.uris))

    @property
    def first(self) -> str:
        return self.at(self.uris[0])

    def at(self, uri: AmqpUri) -> str:
        """One of its addresses, as findings name it."""
        return f"{self.where} {uri.host}:{uri.connect_port}"


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
    product: str = RABBITMQ
    limits_deliveries: bool = False
    asks_for_configure: bool = False
    is_encrypted: bool = False
    is_verified: bool = False
    certificates: tuple[Expiring, ...] = ()
    blocked: str | None = None

    @property
    def is_rabbitmq(self) -> bool:
        return self.product == RABBITMQ


@dataclass(frozen=True, slots=True)
class Attempt:
    """One address that was tried, with the `broker` that answered or the `error`."""

    endpoint: Endpoint
    uri: AmqpUri
    broker: BrokerFacts | None = None
    error: BrokerError | None = None

    @property
    def where(self) -> str:
        return self.endpoint.at(self.uri)


def address(uri: AmqpUri) -> str:
    return f"{uri.connect_host}:{uri.connect_port}"


def upstream(name: str, vhost: str, uris: Sequence[AmqpUri], downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(f"upstream {name}", vhost, reachable(uris, vhost, downstream), name)


def shovel_endpoints(shovel: Shovel, downstream: Sequence[AmqpUri]) -> tuple[Endpoint, Endpoint]:
    """The source and the destination."""

    def end(where: str, uris: Sequence[AmqpUri], place: ShovelPlace) -> Endpoint:
        reached = reachable(uris, DEFAULT_VHOST, downstream)
        is_amqp10 = isinstance(place, AddressSource | AddressDestination)
        return Endpoint(where, DEFAULT_VHOST, reached, is_amqp10=is_amqp10)

    return (
        end(SOURCE, shovel.source_uris, shovel.source),
        end(DESTINATION, shovel.destination_uris, shovel.destination),
    )


def downstream_in(vhost: str, downstream: Sequence[AmqpUri]) -> Endpoint:
    return Endpoint(DOWNSTREAM, vhost, tuple(uri.in_vhost(vhost) for uri in downstream))


def ends_of(planned: PlannedLink, downstream: Sequence[AmqpUri]) -> LinkEnds:
    link = planned.link
    if isinstance(link, ShovelLink):
        return LinkEnds(planned, *shovel_endpoints(link.shovel, downstream))
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
            yield from shovel_endpoints(shovel, downstream)


def is_by_certificate(uri: AmqpUri) -> bool:
    return uri.mechanisms == (Mechanism.EXTERNAL,)


@dataclass(frozen=True, slots=True)
class BrokerApis:
    """`own` is the downstream's HTTP API. `given` are others, by VHOST/NAME or NAME of an upstream, or by HOST:PORT;
    `configured` are those that upstreams name themselves, by VHOST/NAME."""

    downstream: Sequence[AmqpUri]
    own: BrokerApi | None = None
    given: Mapping[str, BrokerApi] = field(default_factory=dict)
    configured: Mapping[str, BrokerApi] = field(default_factory=dict)

    def of(self, endpoint: Endpoint) -> BrokerApi | None:
        keys = _keys_of(endpoint)
        given = (known[key] for known in (self.given, self.configured) for key in keys if key in known)
        is_own = not endpoint.addresses.isdisjoint(map(address, self.downstream))
        return next(given, self.own if is_own else None)

    @property
    def all(self) -> tuple[BrokerApi, ...]:
        own = [] if self.own is None else [self.own]
        return tuple(dict.fromkeys([*own, *self.given.values(), *self.configured.values()]))


def _keys_of(endpoint: Endpoint) -> tuple[str, ...]:
    """The keys that an HTTP API of the broker can be given by, the most exact first."""
    name = endpoint.upstream
    names = (f"{endpoint.default_vhost}/{name}", name) if name else ()
    return (*names, *sorted(endpoint.addresses))


def judge_given_apis(given: Iterable[str], endpoints: Iterable[Endpoint]) -> Iterator[Finding]:
    """Find names of HTTP APIs that fit no broker, or several."""
    brokers: dict[str, set[frozenset[str]]] = {}
    for endpoint in endpoints:
        for key in _keys_of(endpoint):
            brokers.setdefault(key, set()).add(endpoint.addresses)
    for name in given:
        where = f"--api {name}"
        if name not in brokers:
            message = "no upstream has this name or address, so the HTTP API wasn't asked about any"
            fix = "give the name of an upstream, VHOST/NAME, or HOST:PORT as its URI has it"
            yield Finding.warning(Topic.DEFINITIONS, where, message, fix)
        elif len(brokers[name]) > 1 and ":" not in name:
            message = "upstreams of this name in several vhosts have different addresses, but one HTTP API"
            yield Finding.warning(Topic.DEFINITIONS, where, message, f"give --api VHOST/{name} for each")


@dataclass(frozen=True, slots=True)
class CheckContext:
    """`cluster` is the downstream's name; empty if it could not be read. `addresses` has of each broker the first one
    that works. `paused` are the ids of links that the running agent has paused."""

    links: tuple[LinkEnds, ...]
    brokers: Mapping[Endpoint, tuple[BrokerFacts, ...]]
    cluster: str
    apis: BrokerApis
    addresses: Mapping[Endpoint, AmqpUri] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()

    def broker(self, endpoint: Endpoint) -> BrokerFacts | None:
        """The facts from its first address that works."""
        return next(iter(self.brokers.get(endpoint, ())), None)


def context_of(
    links: Sequence[PlannedLink], attempts: Iterable[Attempt], cluster: str, apis: BrokerApis
) -> CheckContext:
    brokers: dict[Endpoint, tuple[BrokerFacts, ...]] = {}
    addresses: dict[Endpoint, AmqpUri] = {}
    for each in attempts:
        if each.broker is not None:
            brokers[each.endpoint] = (*brokers.get(each.endpoint, ()), each.broker)
            addresses.setdefault(each.endpoint, each.uri)
    ends = tuple(ends_of(each, apis.downstream) for each in links)
    return CheckContext(
        ends, brokers, cluster, apis, addresses, frozenset(each.link.id for each in links if each.is_paused)
    )
