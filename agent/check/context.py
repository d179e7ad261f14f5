"""The context that all checks share: the addresses that work, the ends of links, the HTTP APIs that can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.check.connections import Attempt, BrokerFacts, Endpoint, LinkEnds, address, ends_of
from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.core.addresses.uri import AmqpUri
from agent.core.links.plan import PlannedLink


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
