"""Definitions and what stands on the downstream → the links that should exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from agent.core import names, policies
from agent.core.bindings import TAKES_EVERYTHING
from agent.core.model import (
    Choice,
    Definitions,
    Exchange,
    Federation,
    Link,
    LinkKind,
    LinkSettings,
    Queue,
    SetMember,
    Upstream,
    VhostDefinitions,
    VhostState,
)
from agent.core.patterns import Pattern
from agent.core.policies import Chosen, PolicyBook
from agent.core.suggest import did_you_mean
from agent.errors import Place, Problem, Severity

ALL = "all"


@dataclass(frozen=True, slots=True)
class Resolution:
    links: tuple[Link, ...]
    problems: tuple[Problem, ...]


def resolve(definitions: Definitions, states: Mapping[str, VhostState]) -> Resolution:
    """Every link that should exist, and what stands in the way of those that can't."""
    links: list[Link] = []
    problems: list[Problem] = []
    ids = names.LinkIds()
    for vhost in sorted({*definitions.vhosts, *states}):
        resolver = _VhostResolver(vhost, definitions.of(vhost), states.get(vhost, VhostState()), ids=ids)
        links.extend(resolver.links())
        problems.extend(resolver.problems)
    return Resolution(tuple(links), tuple(dict.fromkeys(problems)))


@dataclass(frozen=True, slots=True)
class _Source:
    """An upstream as one member of a set uses it."""

    upstream: Upstream
    settings: LinkSettings


class _VhostResolver:
    def __init__(self, vhost: str, definitions: VhostDefinitions, state: VhostState, *, ids: names.LinkIds) -> None:
        self.problems: list[Problem] = []
        self._vhost = vhost
        self._ids = ids
        self._definitions = definitions
        self._state = state
        self._book = PolicyBook(definitions.policies.values())
        self._sources: dict[Chosen, tuple[_Source, ...]] = {}

    def links(self) -> Iterator[Link]:
        for _, exchange in sorted(self.exchanges.items()):
            chosen = self._choose_for_exchange(exchange)
            if chosen is not None and self._federates(exchange, chosen):
                yield from self._exchange_links(exchange, chosen)
        for _, queue in sorted(self._state.queues.items()):
            chosen = policies.chosen_by_policy(self._book.for_queue(queue))
            if chosen is not None and policies.can_federate_queue(queue):
                yield from self._queue_links(queue, chosen)
        yield from self._shovel_links()

    @cached_property
    def exchanges(self) -> dict[str, Exchange]:
        """What stands, and what the agent will declare; a standing exchange keeps its own attributes."""
        declared = {
            exchange.name: Exchange(
                name=exchange.name,
                type=exchange.type,
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=exchange.arguments,
            )
            for exchange in self._definitions.exchanges.values()
        }
        return declared | dict(self._state.exchanges)

    def _choose_for_exchange(self, exchange: Exchange) -> Chosen | None:
        declared = self._definitions.exchanges.get(exchange.name)
        if declared is not None and declared.upstream_set is not None:
            return Chosen(Federation(Choice.SET, declared.upstream_set), f"exchanges.{exchange.name}", declared.place)
        by_argument = policies.set_by_argument(exchange, self._place(f"exchange {exchange.name!r}"))
        return by_argument or policies.chosen_by_policy(self._book.for_exchange(exchange))

    def _federates(self, exchange: Exchange, chosen: Chosen) -> bool:
        if policies.can_federate_exchange(exchange):
            return True
        if exchange.name and chosen.source not in self._definitions.policies and exchange.policy is None:
            self._warn(chosen.place, f"exchange {exchange.name!r} is internal and can't be federated")
        return False

    def _exchange_links(self, exchange: Exchange, chosen: Chosen) -> Iterator[Link]:
        bare = replace(exchange, arguments=policies.without_set(exchange.arguments))
        for source in self._distinct(chosen, exchange.name, "exchange"):
            refusal = _refusal(bare, source.settings)
            if refusal is not None:
                self.problems.append(Problem(source.upstream.place, refusal))
            yield self._link(LinkKind.EXCHANGE, bare, source, chosen=chosen, problem=refusal)

    def _queue_links(self, queue: Queue, chosen: Chosen) -> Iterator[Link]:
        for source in self._distinct(chosen, queue.name, "queue"):
            yield self._link(LinkKind.QUEUE, queue, source, chosen=chosen)

    def _link(
        self, kind: LinkKind, local: Exchange | Queue, source: _Source, *, chosen: Chosen, problem: str | None = None
    ) -> Link:
        upstream, settings = source.upstream, source.settings
        exchange, queue = (local, None) if isinstance(local, Exchange) else (None, local)
        remote_name = (settings.exchange if exchange else settings.queue) or local.name
        return Link(
            id=self._ids.of(kind, self._vhost, local.name, upstream.name, remote_name),
            kind=kind,
            vhost=self._vhost,
            name=local.name,
            upstream=upstream.name,
            uris=upstream.uris,
            remote_name=remote_name,
            settings=settings,
            policy=chosen.source,
            exchange=exchange,
            queue=queue,
            problem=problem,
        )

    def _shovel_links(self) -> Iterator[Link]:
        for name, shovel in sorted(self._definitions.shovels.items()):
            yield Link(
                id=self._ids.of(LinkKind.SHOVEL, self._vhost, name),
                kind=LinkKind.SHOVEL,
                vhost=self._vhost,
                name=name,
                upstream="",
                uris=shovel.source_uris,
                remote_name="",
                settings=LinkSettings(),
                policy="",
                shovel=shovel,
            )

    def _distinct(self, chosen: Chosen, name: str, attribute: str) -> Iterator[_Source]:
        """One link for each upstream and name over there, however often a set lists it."""
        found: set[tuple[str, str]] = set()
        for source in self._resolve_sources(chosen):
            key = (source.upstream.name, getattr(source.settings, attribute) or name)
            if key in found:
                self._warn(chosen.place, f"{_describe(chosen)} names upstream {key[0]!r} twice; the first one counts")
                continue
            found.add(key)
            yield source

    def _resolve_sources(self, chosen: Chosen) -> tuple[_Source, ...]:
        sources = self._sources.get(chosen)
        if sources is None:
            sources = self._sources[chosen] = tuple(
                _Source(upstream, replace(LinkSettings(), **{**upstream.settings, **member.settings}))
                for member in self._members(chosen)
                if (upstream := self._upstream(member.upstream, chosen)) is not None
            )
        return sources

    def _members(self, chosen: Chosen) -> tuple[SetMember, ...]:
        upstreams = self._definitions.upstreams
        match chosen.federation.choice:
            case Choice.UPSTREAM:
                return (SetMember(chosen.federation.value),)
            case Choice.PATTERN:
                pattern = Pattern(chosen.federation.value)
                return tuple(SetMember(name) for name in sorted(upstreams) if pattern.matches(name))
            case Choice.SET if chosen.federation.value == ALL:
                return tuple(SetMember(name) for name in sorted(upstreams))
            case Choice.SET:
                return self._set_members(chosen)

    def _set_members(self, chosen: Chosen) -> tuple[SetMember, ...]:
        sets = self._definitions.upstream_sets
        found = sets.get(chosen.federation.value)
        if found is None:
            hint = did_you_mean(chosen.federation.value, sets)
            self._warn(
                chosen.place,
                f"{_describe(chosen)} in vhost {self._vhost!r} isn't defined, so it yields no link{hint}",
            )
            return ()
        return found.members

    def _upstream(self, name: str, chosen: Chosen) -> Upstream | None:
        upstream = self._definitions.upstreams.get(name)
        if upstream is None:
            hint = did_you_mean(name, self._definitions.upstreams)
            self._warn(
                chosen.place,
                f"upstream {name!r} of {_describe(chosen)} isn't defined in vhost {self._vhost!r}, "
                f"so it yields no link{hint}",
            )
        return upstream

    def _warn(self, place: Place, message: str) -> None:
        self.problems.append(Problem(place, message, Severity.WARNING))

    def _place(self, what: str) -> Place:
        return Place(f"downstream {what} in vhost {self._vhost!r}")


def _describe(chosen: Chosen) -> str:
    kind = {Choice.UPSTREAM: "federation-upstream", Choice.SET: "upstream set", Choice.PATTERN: "upstream pattern"}
    return f"{kind[chosen.federation.choice]} {chosen.federation.value!r}"


def _refusal(exchange: Exchange, settings: LinkSettings) -> str | None:
    if settings.forward_unrouted and exchange.type not in TAKES_EVERYTHING:
        return (
            f"forward-unrouted can't be had for exchange {exchange.name!r} of type {exchange.type}: no binding asks "
            f"for everything there; drop the key or use one of {', '.join(TAKES_EVERYTHING)}"
        )
    return None
