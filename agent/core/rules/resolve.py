"""Definitions and what exists on the downstream → the links that should exist.

Why: docs/decisions/0031-plan-and-run-agree.md
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from agent.core import model
from agent.core.rules import names, policies
from agent.core.rules.hops import MATCH_ALL_BINDINGS
from agent.core.rules.patterns import TimeBudget, TimedPattern, VhostTimeBudget
from agent.core.rules.policies import ChosenDefinition, OwnPolicies, PolicyVerdict
from agent.core.text import did_you_mean, in_another_vhost, listed
from agent.errors import Place, Problem, Severity

ALL = "all"


MOST_HINTS = 20  # of a vhost, since comparing names takes its time


@dataclass(frozen=True, slots=True)
class Resolution:
    """`unjudged` are the patterns that took too long: the links that exist because of them stay as they were."""

    links: tuple[model.Link, ...]
    problems: tuple[Problem, ...]
    unjudged: tuple[Problem, ...] = ()


def resolve(definitions: model.Definitions, states: Mapping[str, model.VhostState]) -> Resolution:
    """Every link that should exist, and why some can't."""
    return finish(resolving(definitions, states))


def resolving(
    definitions: model.Definitions,
    states: Mapping[str, model.VhostState],
    *,
    previous: Iterable[model.Link] = (),
    clock: Callable[[], float] = lambda: 0.0,
) -> Generator[None, None, Resolution]:
    """`resolve` in short steps, so that the caller can do other work in between. `previous` are the links of the last
    resolution: where a pattern takes too long, its former result still holds. `clock` returns seconds, preferably of
    CPU time."""
    links: list[model.Link] = []
    problems: list[Problem] = []
    unjudged: list[Problem] = []
    ids = names.LinkIds()
    budget = TimeBudget(clock)
    before = _by_vhost(previous)
    for vhost in sorted({*definitions.vhosts, *states}):
        resolver = _VhostResolver(
            vhost,
            definitions.of(vhost),
            states.get(vhost, model.VhostState()),
            ids=ids,
            budget=budget.of_vhost(),
            previous=before.get(vhost, {}),
            everywhere=definitions.vhosts,
        )
        for link in resolver.links():
            if link is not None:
                links.append(link)
            yield
        problems.extend(resolver.problems)
        unjudged.extend(resolver.unjudged())
    return Resolution(tuple(links), tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(unjudged)))


_PreviousLinks = Mapping[tuple[model.LinkKind, str], list[model.FederationLink]]
"""The links of one vhost by kind and name, without shovels, for which no pattern is matched."""


def _by_vhost(links: Iterable[model.Link]) -> Mapping[str, _PreviousLinks]:
    found: dict[str, dict[tuple[model.LinkKind, str], list[model.FederationLink]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for link in links:
        if not isinstance(link, model.ShovelLink):
            found[link.vhost][link.kind, link.name].append(link)
    return found


@dataclass(frozen=True, slots=True)
class _LinkSource:
    """An upstream as one member of a set uses it; an `unjudged` one counts where its link exists already."""

    upstream: model.Upstream
    settings: model.LinkSettings
    unjudged: bool = False


class _VhostResolver:
    def __init__(
        self,
        vhost: str,
        definitions: model.VhostDefinitions,
        state: model.VhostState,
        *,
        ids: names.LinkIds,
        budget: VhostTimeBudget,
        previous: _PreviousLinks,
        everywhere: Mapping[str, model.VhostDefinitions],
    ) -> None:
        self.problems: list[Problem] = []
        self._vhost = vhost
        self._ids = ids
        self._definitions = definitions
        self._standby = definitions.upstream_sets.get(names.STANDBY)
        self._state = state
        self._budget = budget
        self._previous = previous
        self._everywhere = everywhere
        self._own_policies = OwnPolicies(budget)
        self._sources: dict[ChosenDefinition, tuple[_LinkSource, ...]] = {}
        self._members_known: dict[str, tuple[model.SetMember, ...]] = {}  # by the set's name
        self._upstream_patterns: list[tuple[ChosenDefinition, TimedPattern]] = []
        self._hints_left = MOST_HINTS

    def links(self) -> Iterator[model.Link | None]:
        """All links, and None now and then, so that the caller can do other work."""
        for _ in self._own_policies.read(self._definitions.policies.values()):
            yield None
        for _, exchange in sorted(self.exchanges.items()):
            yield from self._links_of_exchange(exchange)
            yield None
        for _, queue in sorted(self._state.queues.items()):
            yield from self._links_of_queue(queue)
            yield None
        yield from self._shovel_links()
        if self._standby is not None:
            self._note_unused(self._standby)
        for policy in self._definitions.policies.values():
            self._check_names(policies.chosen_by_policy(policy))
            yield None
        for name in self._definitions.upstream_sets:
            self._set_members(name)
            yield None

    def _check_names(self, chosen: ChosenDefinition | None) -> None:
        """Reports names that aren't defined and patterns that match nothing, even if nothing is federated by them
        yet."""
        if chosen is None:
            return
        found = self._resolve_sources(chosen)
        if chosen.federation.choice is model.Choice.PATTERN and not found:
            message = f"{_describe(chosen)} in vhost {self._vhost!r} matches no upstream, so it yields no link"
            self._warn(chosen.place, f"{message}: {_some(self._definitions.upstreams)}")

    def _note_unused(self, standby: model.UpstreamSet) -> None:
        unused = policies.without_effect(self._definitions, self.exchanges.values(), self._state.queues.values())
        if unused:
            self._warn(
                standby.place,
                f"vhost {self._vhost!r} is federated by its standby alone until a promotion; not used: "
                f"{listed(unused)}",
            )

    def unjudged(self) -> Iterator[Problem]:
        for policy, why in self._own_policies.unjudged:
            yield Problem(
                policy.place,
                f"policy {policy.name!r} in vhost {self._vhost!r} can't be held against all names, so links that "
                f"depend on it stay as they are: its pattern can't be used: {why}",
            )
        for chosen, pattern in self._upstream_patterns:
            if pattern.problem is not None:
                yield Problem(
                    chosen.place,
                    f"policy {chosen.source!r} in vhost {self._vhost!r} can't be held against all upstreams, so links "
                    f"that depend on it stay as they are: its federation-upstream-pattern can't be used: "
                    f"{pattern.problem}",
                )

    def _links_of_exchange(self, exchange: model.Exchange) -> Iterator[model.Link]:
        previous = self._previous.get((model.LinkKind.EXCHANGE, exchange.name), [])
        verdict = self._own_policies.verdict_on(exchange, _policy_of(previous))
        chosen = self._choose_for_exchange(exchange, verdict)
        is_by_policy = chosen is None or chosen.source == _source_of(verdict)
        if is_by_policy and _is_undecided(verdict, previous):
            yield from self._unchanged(previous)
            return
        if chosen is not None and self._federates(exchange, chosen):
            yield from self._exchange_links(exchange, chosen)

    def _links_of_queue(self, queue: model.Queue) -> Iterator[model.Link]:
        if self._standby is not None:  # a link would take messages from the source
            return
        previous = self._previous.get((model.LinkKind.QUEUE, queue.name), [])
        verdict = self._own_policies.verdict_on(queue, _policy_of(previous))
        if _is_undecided(verdict, previous):
            yield from self._unchanged(previous)
            return
        chosen = policies.chosen_by_policy(verdict.policy)
        if chosen is not None and policies.can_federate_queue(queue):
            yield from self._queue_links(queue, chosen)

    def _unchanged(self, previous: Iterable[model.FederationLink]) -> Iterator[model.Link]:
        """The links whose policy can't be judged: only an upstream that is gone, or has moved, changes them."""
        for link in previous:
            upstream = self._definitions.upstreams.get(link.upstream)
            if upstream is not None:
                link_id = self._ids.of(link.kind, self._vhost, link.name, link.upstream, link.remote_name)
                yield replace(link, id=link_id, uris=upstream.uris, management=upstream.management)

    @cached_property
    def exchanges(self) -> dict[str, model.Exchange]:
        """The existing exchanges and those that the agent will declare; an existing one keeps its own attributes."""
        declared = {name: each.exchange for name, each in self._definitions.exchanges.items()}
        return declared | dict(self._state.exchanges)

    def _choose_for_exchange(self, exchange: model.Exchange, verdict: PolicyVerdict) -> ChosenDefinition | None:
        if self._standby is not None:
            chosen = policies.chosen_by_policy(verdict.policy)
            is_by_it = chosen is not None and chosen.federation == policies.OF_STANDBY
            return chosen if is_by_it and exchange.type not in policies.COMPETING_TYPES else None
        declared = self._definitions.exchanges.get(exchange.name)
        if declared is not None and declared.upstream_set is not None:
            return ChosenDefinition(
                model.Federation(model.Choice.SET, declared.upstream_set), f"exchanges.{exchange.name}", declared.place
            )
        by_argument = policies.set_by_argument(exchange, self._place(f"exchange {exchange.name!r}"))
        return by_argument or policies.chosen_by_policy(verdict.policy)

    def _federates(self, exchange: model.Exchange, chosen: ChosenDefinition) -> bool:
        if policies.can_federate_exchange(exchange):
            return True
        if exchange.name and chosen.source not in self._definitions.policies and exchange.policy is None:
            self._warn(chosen.place, f"exchange {exchange.name!r} is internal and can't be federated")
        return False

    def _exchange_links(self, exchange: model.Exchange, chosen: ChosenDefinition) -> Iterator[model.Link]:
        bare = replace(exchange, arguments=policies.without_set(exchange.arguments))
        for source, keys in self._distinct(model.LinkKind.EXCHANGE, exchange.name, chosen):
            refusal = self._unusable(exchange) or _refusal(bare, source.settings)
            if refusal is not None:
                self.problems.append(Problem(source.upstream.place, refusal))
            yield model.ExchangeLink(**keys, exchange=bare, problem=refusal)

    def _unusable(self, exchange: model.Exchange) -> str | None:
        if exchange.unusable is None:
            return None
        return (
            f"exchange {exchange.name!r} in vhost {self._vhost!r} can't be federated: it {exchange.unusable}; "
            "declare it again with other arguments"
        )

    def _queue_links(self, queue: model.Queue, chosen: ChosenDefinition) -> Iterator[model.Link]:
        for _, keys in self._distinct(model.LinkKind.QUEUE, queue.name, chosen):
            yield model.QueueLink(**keys, queue=queue)

    def _shovel_links(self) -> Iterator[model.Link]:
        for name, shovel in sorted(self._definitions.shovels.items()):
            yield model.ShovelLink(
                id=self._ids.of(model.LinkKind.SHOVEL, self._vhost, name),
                vhost=self._vhost,
                name=name,
                uris=shovel.source_uris,
                shovel=shovel,
            )

    def _distinct(
        self, kind: model.LinkKind, name: str, chosen: ChosenDefinition
    ) -> Iterator[tuple[_LinkSource, dict[str, Any]]]:
        """One source for each upstream and name of the object there, however often a set lists it; with the values that
        links of both kinds have."""
        found: set[tuple[str, str]] = set()
        for source in self._resolve_sources(chosen):
            upstream, settings = source.upstream, source.settings
            remote_name = (settings.exchange if kind is model.LinkKind.EXCHANGE else settings.queue) or name
            if (upstream.name, remote_name) in found:
                message = f"{_describe(chosen)} names upstream {upstream.name!r} twice; the first one counts"
                self._warn(chosen.place, message)
                continue
            found.add((upstream.name, remote_name))
            before = self._previous.get((kind, name), ())
            if source.unjudged and all(link.upstream != upstream.name for link in before):
                continue
            keys = {
                "id": self._ids.of(kind, self._vhost, name, upstream.name, remote_name),
                "vhost": self._vhost,
                "name": name,
                "upstream": upstream.name,
                "uris": upstream.uris,
                "remote_name": remote_name,
                "settings": settings,
                "management": upstream.management,
                "policy": chosen.source,
            }
            yield source, keys

    def _resolve_sources(self, chosen: ChosenDefinition) -> tuple[_LinkSource, ...]:
        sources = self._sources.get(chosen)
        if sources is None:
            sources = self._sources[chosen] = tuple(
                _LinkSource(upstream, member.over(upstream.settings), unjudged)
                for member, unjudged in self._members(chosen)
                if (upstream := self._upstream(member.upstream, chosen.place, _describe(chosen))) is not None
            )
        return sources

    def _members(self, chosen: ChosenDefinition) -> Iterable[tuple[model.SetMember, bool]]:
        """The members of a set, each with True if its pattern took too long to be matched."""
        upstreams = self._definitions.upstreams
        match chosen.federation.choice:
            case model.Choice.UPSTREAM:
                return ((model.SetMember(chosen.federation.value), False),)
            case model.Choice.PATTERN:
                return self._matching_members(chosen)
            case model.Choice.SET if chosen.federation.value == ALL:
                return tuple((model.SetMember(name), False) for name in sorted(upstreams))
            case model.Choice.SET:
                return tuple((member, False) for member in self._members_of_set(chosen))

    def _matching_members(self, chosen: ChosenDefinition) -> Iterator[tuple[model.SetMember, bool]]:
        pattern = TimedPattern(chosen.federation.value, self._budget)
        self._upstream_patterns.append((chosen, pattern))
        for name in sorted(self._definitions.upstreams):
            found = pattern.matches(name)
            if found is not False:
                yield model.SetMember(name), found is None

    def _members_of_set(self, chosen: ChosenDefinition) -> tuple[model.SetMember, ...]:
        name, sets = chosen.federation.value, self._definitions.upstream_sets
        if name not in sets:
            hint = self._hint("upstream set", name, sets)
            self._warn(
                chosen.place, f"{_describe(chosen)} in vhost {self._vhost!r} isn't defined, so it yields no link{hint}"
            )
            return ()
        return self._set_members(name)

    def _set_members(self, name: str) -> tuple[model.SetMember, ...]:
        """The members of a defined set whose upstreams exist. One that doesn't is a mistake of the set, whatever uses
        it."""
        known = self._members_known.get(name)
        if known is None:
            found = self._definitions.upstream_sets[name]
            known = self._members_known[name] = tuple(
                member
                for member in found.members
                if self._upstream(member.upstream, found.place, f"upstream set {name!r}") is not None
            )
        return known

    def _upstream(self, name: str, place: Place, used_by: str) -> model.Upstream | None:
        upstream = self._definitions.upstreams.get(name)
        if upstream is None:
            hint = self._hint("upstream", name, self._definitions.upstreams)
            self._warn(
                place,
                f"upstream {name!r} of {used_by} isn't defined in vhost {self._vhost!r}, so it yields no link{hint}",
            )
        return upstream

    def _hint(self, what: str, name: str, known: Iterable[str]) -> str:
        self._hints_left -= 1
        if self._hints_left < 0:
            return ""
        by_vhost = {
            repr(vhost): found.upstreams if what == "upstream" else found.upstream_sets
            for vhost, found in self._everywhere.items()
        }
        return in_another_vhost(what, name, by_vhost) or did_you_mean(name, known)

    def _warn(self, place: Place, message: str) -> None:
        self.problems.append(Problem(place, message, Severity.NOT_RUN))

    def _place(self, what: str) -> Place:
        return Place(f"downstream {what} in vhost {self._vhost!r}")


def _policy_of(previous: Iterable[model.Link]) -> str | None:
    """The policy that an object's links were derived from; they share it."""
    return next((link.policy for link in previous), None)


def _source_of(verdict: PolicyVerdict) -> str | None:
    return None if verdict.policy is None else verdict.policy.name


def _is_undecided(verdict: PolicyVerdict, previous: Iterable[model.Link]) -> bool:
    """True if the verdict would end links that a policy whose pattern took too long may still ask for."""
    before = _policy_of(previous)
    return verdict.undecided and before is not None and before != _source_of(verdict)


def _some(names: Iterable[str]) -> str:
    """The first few names, in words."""
    known = sorted(names)
    return f"there are {listed([*map(repr, known)])}" if known else "none is defined there"


def _describe(chosen: ChosenDefinition) -> str:
    kind = {
        model.Choice.UPSTREAM: "federation-upstream",
        model.Choice.SET: "upstream set",
        model.Choice.PATTERN: "upstream pattern",
    }
    return f"{kind[chosen.federation.choice]} {chosen.federation.value!r}"


def _refusal(exchange: model.Exchange, settings: model.LinkSettings) -> str | None:
    if settings.forward_unrouted and exchange.type not in MATCH_ALL_BINDINGS:
        return (
            f"forward-unrouted can't be had for exchange {exchange.name!r} of type {exchange.type}: no binding asks "
            f"for everything there; drop the key or use one of {', '.join(MATCH_ALL_BINDINGS)}"
        )
    return None


T = TypeVar("T")


def finish(steps: Generator[None, None, T]) -> T:
    """Runs all steps at once and returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
