"""What `run` would create, keep and delete on which broker, and why. Looks at nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.core.fields import EMPTY, Table
from agent.core.model import (
    Binding,
    DeclaredExchange,
    Exchange,
    ExchangeLink,
    Link,
    QueueLink,
    QueueSource,
    ShovelLink,
)
from agent.core.rules import names, objects
from agent.core.rules.bindings import TAKES_EVERYTHING, Group, Route
from agent.core.rules.hops import Site


class Verb(StrEnum):
    CREATE = "create"
    KEEP = "keep"
    DELETE = "delete"
    BIND = "bind"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing `run` would do on one broker; a binding's `name` is its routing key, `type` an exchange's."""

    verb: Verb
    broker: str
    vhost: str
    kind: str
    name: str
    why: str
    arguments: Table = EMPTY
    type: str = ""


class Outlook(StrEnum):
    """What would become of a link."""

    RUN = "run"
    STANDBY = "standby"
    BACKOFF = "backoff"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class QueueSeen:
    messages: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of the broker at a link's other end; `error` says why nothing could be."""

    broker: str
    site: Site | None = None
    queue: QueueSeen | None = None
    exchange_stands: bool = False
    letters: tuple[str, ...] = ()
    error: str | None = None
    error_is_permanent: bool = False
    canary_exists: bool = False


@dataclass(frozen=True, slots=True)
class PlannedLink:
    link: Link
    outlook: Outlook
    reason: str
    broker: str
    bindings: int = 0
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    downstream: tuple[Action, ...] = ()
    links: tuple[PlannedLink, ...] = ()


@dataclass(frozen=True, slots=True)
class Downstream:
    """What the plan knows of the cluster the agent stands beside."""

    broker: str
    cluster: str
    bindings: Mapping[tuple[str, str], tuple[Binding, ...]] = field(default_factory=dict)
    native_links: frozenset[tuple[str, str, str]] = frozenset()
    """(vhost, exchange or queue, upstream) of the links that the native plugin runs."""


def plan_declarations(
    downstream: Downstream, vhost: str, declared: Iterable[DeclaredExchange], standing: Mapping[str, Exchange]
) -> tuple[Action, ...]:
    """The exchanges of the configuration, held against what stands."""
    return tuple(_plan_declaration(downstream.broker, vhost, wanted, standing.get(wanted.name)) for wanted in declared)


def _plan_declaration(broker: str, vhost: str, wanted: DeclaredExchange, standing: Exchange | None) -> Action:
    if standing is None:
        why = f"declared in {wanted.place}"
        return Action(Verb.CREATE, broker, vhost, "exchange", wanted.name, why, wanted.arguments, wanted.type)
    differing = ", ".join(
        name
        for name in ("type", "durable", "auto_delete", "internal")
        if getattr(wanted, name) != getattr(standing, name)
    )
    why = f"stands, but its {differing} differ from {wanted.place}; it is used as it stands" if differing else "stands"
    return Action(Verb.KEEP, broker, vhost, "exchange", wanted.name, why)


def plan_link(link: Link, sight: Sight, downstream: Downstream) -> PlannedLink:
    """One link held against what was seen at its other end."""
    outlook, reason = _outlook(link, sight, downstream)
    if outlook is not Outlook.RUN:
        return PlannedLink(link, outlook, reason, sight.broker)
    if isinstance(link, ExchangeLink) and sight.site is not None:
        return _plan_exchange_link(link, link.exchange, sight, upstream=sight.site, downstream=downstream)
    if isinstance(link, QueueLink):
        return PlannedLink(link, outlook, reason, sight.broker, actions=(_remote_queue(link, sight),))
    return PlannedLink(link, outlook, reason, sight.broker, actions=tuple(_shovel_source(link, sight)))


def _outlook(link: Link, sight: Sight, downstream: Downstream) -> tuple[Outlook, str]:
    if link.problem is not None:
        return Outlook.INVALID, link.problem
    if (link.vhost, link.name, link.upstream) in downstream.native_links:
        return (
            Outlook.STANDBY,
            "the federation plugin of the downstream runs this link; the agent waits till it lets go",
        )
    if sight.error is not None:
        return (Outlook.INVALID if sight.error_is_permanent else Outlook.BACKOFF), sight.error
    source = _queue_source(link)
    if source is not None and source.is_predeclared and sight.queue is None:
        return (
            Outlook.BACKOFF,
            f"queue {source.queue!r} is missing at the source, and src-predeclared says that it stands",
        )
    if isinstance(link, ExchangeLink) and sight.queue is not None and sight.queue.consumers:
        served = f"the upstream queue has {sight.queue.consumers} consumer(s)"
        return Outlook.STANDBY, f"{served}: the federation plugin or another agent serves it; the agent waits"
    return Outlook.RUN, ""


def upstream_queue_name(link: ExchangeLink, upstream_vhost: str, cluster: str) -> str:
    return names.upstream_queue(
        link.remote_name,
        upstream_vhost,
        downstream_exchange=link.name,
        downstream_vhost=link.vhost,
        downstream_cluster=cluster,
    )


def link_groups(
    link: ExchangeLink, exchange: Exchange, route: Route, bindings: Iterable[Binding], letter: str
) -> frozenset[Group]:
    """The bindings a link keeps upstream; `forward-unrouted` asks for everything besides."""
    everything = TAKES_EVERYTHING.get(exchange.type) if link.settings.forward_unrouted else None
    asked = [*bindings, *([Binding(*everything)] if everything else [])]
    return route.groups(asked, letter)


def _plan_exchange_link(
    link: ExchangeLink, exchange: Exchange, sight: Sight, *, upstream: Site, downstream: Downstream
) -> PlannedLink:
    queue = upstream_queue_name(link, upstream.vhost, downstream.cluster)
    letter = names.other_letter(sight.letters[0]) if sight.letters else names.LETTERS[0]
    route = Route(upstream, Site(downstream.cluster, link.vhost), link.name, link.settings.max_hops)
    groups = link_groups(link, exchange, route, downstream.bindings.get((link.vhost, link.name), ()), letter)
    actions = _Actions(sight.broker, upstream.vhost, queue, letter)
    return PlannedLink(
        link,
        Outlook.RUN,
        "",
        sight.broker,
        len(groups),
        (
            *actions.exchange(link, exchange, sight),
            *actions.queue_and_internal(link, sight, route.downstream),
            *actions.canary(link, sight),
            *actions.bindings(link, groups),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Actions:
    broker: str
    vhost: str
    queue: str
    letter: str

    def exchange(self, link: ExchangeLink, exchange: Exchange, sight: Sight) -> Iterator[Action]:
        if sight.exchange_stands:
            yield self._action(Verb.KEEP, "exchange", link.remote_name, "the upstream exchange stands")
        else:
            why = f"missing upstream; declared with the downstream's type {exchange.type} and attributes"
            created = self._action(Verb.CREATE, "exchange", link.remote_name, why)
            yield replace(created, arguments=exchange.arguments, type=exchange.type)

    def queue_and_internal(self, link: ExchangeLink, sight: Sight, downstream: Site) -> Iterator[Action]:
        if sight.queue is None:
            created = self._action(Verb.CREATE, "queue", self.queue, "buffers what the downstream hasn't taken yet")
            yield replace(created, arguments=objects.queue_arguments(link.settings))
        else:
            why = f"stands with {sight.queue.messages} message(s), which will be forwarded"
            yield self._action(Verb.KEEP, "queue", self.queue, why)
        yield from self._internal(link, sight, downstream)

    def _internal(self, link: ExchangeLink, sight: Sight, downstream: Site) -> Iterator[Action]:
        new = names.internal_exchange(self.queue, self.letter)
        if self.letter in sight.letters:
            yield self._action(Verb.DELETE, "exchange", new, "left over from a rebuild that was interrupted")
        why = (
            f"internal; carries the grouped bindings into the queue; {objects.FALLBACK_TYPE} where the type is unknown"
        )
        yield replace(
            self._action(Verb.CREATE, "exchange", new, why),
            arguments=objects.internal_arguments(link.settings.max_hops, downstream),
            type=objects.NATIVE_TYPE,
        )
        for letter in sight.letters:
            if letter != self.letter:
                old = names.internal_exchange(self.queue, letter)
                why = f"replaced without a gap by {self.letter}, whose bindings are known"
                yield self._action(Verb.DELETE, "exchange", old, why)

    def canary(self, link: ExchangeLink, sight: Sight) -> Iterator[Action]:
        name = names.canary(link.remote_name, self.queue, self.vhost)
        if name is None:
            return
        verb = Verb.KEEP if sight.canary_exists else Verb.CREATE
        why = "internal; goes when the upstream exchange is deleted, which shows no other way; carries no messages"
        yield replace(self._action(verb, "exchange", name, why), type=objects.FALLBACK_TYPE)

    def bindings(self, link: ExchangeLink, groups: frozenset[Group]) -> Iterator[Action]:
        destination = names.internal_exchange(self.queue, self.letter)
        for group in sorted(groups, key=lambda group: (group.routing_key, repr(group.arguments))):
            why = f"from {link.remote_name!r} to {destination!r}, as downstream"
            yield replace(self._action(Verb.BIND, "binding", group.routing_key, why), arguments=group.arguments)

    def _action(self, verb: Verb, kind: str, name: str, why: str) -> Action:
        return Action(verb, self.broker, self.vhost, kind, name, why)


def _remote_queue(link: QueueLink, sight: Sight) -> Action:
    vhost = sight.site.vhost if sight.site else ""
    if sight.queue is None:
        why = "missing upstream; declared with the downstream's attributes"
        return Action(Verb.CREATE, sight.broker, vhost, "queue", link.remote_name, why)
    why = f"stands with {sight.queue.messages} message(s); queue links delete nothing upstream"
    return Action(Verb.KEEP, sight.broker, vhost, "queue", link.remote_name, why)


def _shovel_source(link: Link, sight: Sight) -> Iterator[Action]:
    source = _queue_source(link)
    vhost = sight.site.vhost if sight.site else ""
    if source is None:
        return
    if sight.queue is None:
        yield Action(Verb.CREATE, sight.broker, vhost, "queue", source.queue, "missing at the source; declared durable")
    else:
        why = f"stands with {sight.queue.messages} message(s)"
        yield Action(Verb.KEEP, sight.broker, vhost, "queue", source.queue, why)


def _queue_source(link: Link) -> QueueSource | None:
    """The queue that a shovel consumes from, unless it makes one of its own."""
    if isinstance(link, ShovelLink) and isinstance(link.shovel.source, QueueSource):
        return link.shovel.source
    return None
