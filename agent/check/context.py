"""What a check knows of the brokers: which addresses work, which links lead where, and whose HTTP API can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.check.connections import DESTINATION, SOURCE, Endpoint, Tried, beside, shovel_end, upstream
from agent.check.findings import Finding, Level, Topic
from agent.check.http_api import Api
from agent.check.loops import Spot, Way
from agent.check.releases import Opened
from agent.core.addresses.uri import AmqpUri
from agent.core.links.plan import PlannedLink
from agent.core.model import (
    ExchangeDestination,
    ExchangeLink,
    ExchangeSource,
    Link,
    QueueLink,
    ShovelLink,
    ShovelPlace,
)

_UPSTREAM: Final = "upstream "


@dataclass(frozen=True, slots=True)
class Apis:
    """`own` is the downstream's HTTP API. `given` are others, by VHOST/NAME or NAME of an upstream, or by HOST:PORT;
    `configured` are those that upstreams name themselves, by VHOST/NAME."""

    downstream: Sequence[AmqpUri]
    own: Api | None = None
    given: Mapping[str, Api] = field(default_factory=dict)
    configured: Mapping[str, Api] = field(default_factory=dict)

    def of(self, endpoint: Endpoint) -> Api | None:
        addresses = {_address(uri) for uri in endpoint.uris}
        keys = keys_of(endpoint)
        given = (known[key] for known in (self.given, self.configured) for key in keys if key in known)
        is_own = not addresses.isdisjoint(map(_address, self.downstream))
        return next(given, self.own if is_own else None)

    @property
    def all(self) -> tuple[Api, ...]:
        own = [] if self.own is None else [self.own]
        return tuple(dict.fromkeys([*own, *self.given.values(), *self.configured.values()]))


def keys_of(endpoint: Endpoint) -> tuple[str, ...]:
    """What an HTTP API of it can be given by, the most exact first."""
    addresses = sorted({_address(uri) for uri in endpoint.uris})
    if not endpoint.where.startswith(_UPSTREAM):
        return tuple(addresses)
    name = endpoint.where.removeprefix(_UPSTREAM)
    return (f"{endpoint.default_vhost}/{name}", name, *addresses)


def judge_given(given: Iterable[str], endpoints: Iterable[Endpoint]) -> Iterator[Finding]:
    """Names of HTTP APIs that fit no broker, or several."""
    brokers: dict[str, set[frozenset[str]]] = {}
    for endpoint in endpoints:
        for key in keys_of(endpoint):
            brokers.setdefault(key, set()).add(frozenset(map(_address, endpoint.uris)))
    for name in given:
        if name not in brokers:
            message = "no upstream has this name or address, so the HTTP API wasn't asked about any"
            fix = "give the name of an upstream, VHOST/NAME, or HOST:PORT as its URI has it"
            yield Finding(Level.WARNING, Topic.DEFINITIONS, f"--api {name}", message, fix)
        elif len(brokers[name]) > 1 and ":" not in name:
            message = "upstreams of this name in several vhosts have different addresses, but one HTTP API"
            yield Finding(
                Level.WARNING, Topic.DEFINITIONS, f"--api {name}", message, f"give --api VHOST/{name} for each"
            )


def _address(uri: AmqpUri) -> str:
    return f"{uri.connect_host}:{uri.connect_port}"


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


def ends_of(planned: PlannedLink, downstream: Sequence[AmqpUri]) -> LinkEnds:
    link = planned.link
    if isinstance(link, ShovelLink):
        source = shovel_end(SOURCE, link.shovel.source_uris, downstream)
        return LinkEnds(planned, source, shovel_end(DESTINATION, link.shovel.destination_uris, downstream))
    return LinkEnds(planned, upstream(link.upstream, link.vhost, link.uris, downstream), beside(link.vhost, downstream))


@dataclass(frozen=True, slots=True)
class Scene:
    links: tuple[LinkEnds, ...]
    opened: Mapping[Endpoint, tuple[Opened, ...]]
    cluster: str
    """The downstream's name; empty if it could not be read."""
    apis: Apis
    addresses: Mapping[Endpoint, AmqpUri] = field(default_factory=dict)
    """Of each broker the first address that works."""
    paused: frozenset[str] = frozenset()
    """The ids of links that the running agent has paused."""

    def shown(self, endpoint: Endpoint) -> Opened | None:
        return next(iter(self.opened.get(endpoint, ())), None)

    def by_source(self) -> dict[Endpoint, list[LinkEnds]]:
        found: dict[Endpoint, list[LinkEnds]] = {}
        for each in self.links:
            found.setdefault(each.source, []).append(each)
        return found

    @property
    def ways(self) -> list[Way]:
        """Where links bring messages, as far as their brokers are known."""
        return [way for each in self.links for way in [self._way(each)] if way is not None]

    def _way(self, each: LinkEnds) -> Way | None:
        source, destination = self.shown(each.source), self.shown(each.destination)
        link = each.link
        # A queue link takes messages only for consumers, so links in both directions are intended.
        if source is None or destination is None or isinstance(link, QueueLink):
            return None
        if isinstance(link, ExchangeLink):
            ends = _spot(source, "exchange", link.remote_name), _spot(destination, "exchange", link.name)
            return Way(each.label, *ends, link.settings.max_hops)
        at, to = _place(source, link.shovel.source), _place(destination, link.shovel.destination)
        return None if at is None or to is None else Way(each.label, at, to)


def _place(shown: Opened, place: ShovelPlace) -> Spot | None:
    """None if it differs from message to message."""
    if isinstance(place, ExchangeSource | ExchangeDestination):
        return None if place.exchange is None else _spot(shown, "exchange", place.exchange)
    return _spot(shown, "queue", place.queue)


def _spot(shown: Opened, kind: str, name: str) -> Spot:
    return Spot(shown.cluster or shown.where, shown.vhost, kind, name)


def opened_by_endpoint(tried: Iterable[Tried]) -> dict[Endpoint, tuple[Opened, ...]]:
    found: dict[Endpoint, list[Opened]] = {}
    for each in tried:
        if each.opened is not None:
            found.setdefault(each.endpoint, []).append(each.opened)
    return {endpoint: tuple(opened) for endpoint, opened in found.items()}


def working_addresses(tried: Iterable[Tried]) -> dict[Endpoint, AmqpUri]:
    found: dict[Endpoint, AmqpUri] = {}
    for each in tried:
        if each.opened is not None:
            found.setdefault(each.endpoint, each.uri)
    return found
