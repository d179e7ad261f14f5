"""The definition that federates an exchange or a queue: one, never several merged.

Why: docs/decisions/0023-one-definition.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.core.fields import Table
from agent.core.model import ApplyTo, Choice, Exchange, Federation, Policy, Queue, QueueType, VhostDefinitions
from agent.core.rules.names import AGENT_PREFIX, STANDBY
from agent.core.rules.patterns import TimedPattern, VhostTimeBudget
from agent.errors import Place

INTERNAL_PURPOSE = "x-internal-purpose"
SET_ARGUMENTS = ("upstream-set", "x-upstream-set")
OF_STANDBY = Federation(Choice.SET, STANDBY)
"""All that federates in a vhost that is a standby's."""
COMPETING_TYPES = frozenset({"x-consistent-hash", "x-random", "x-modulus-hash", "x-local-random"})
"""Exchanges whose bindings share messages: a link's queue would take a part from the source's own queues."""
_FOR_EXCHANGES = frozenset({ApplyTo.EXCHANGES, ApplyTo.ALL})
_FOR_QUEUES = {
    QueueType.CLASSIC: frozenset({ApplyTo.QUEUES, ApplyTo.ALL, ApplyTo.CLASSIC_QUEUES}),
    QueueType.QUORUM: frozenset({ApplyTo.QUEUES, ApplyTo.ALL, ApplyTo.QUORUM_QUEUES}),
    None: frozenset({ApplyTo.QUEUES, ApplyTo.ALL}),
}


@dataclass(frozen=True, slots=True)
class ChosenDefinition:
    """The definition in force and its place; `source` is its name in a link."""

    federation: Federation
    source: str
    place: Place


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """The policy in force; `undecided` if another that could not be matched might win instead."""

    policy: Policy | None
    undecided: bool = False


class OwnPolicies:
    """The agent's own policies of one vhost, highest priority first; equal ones by name, so that the choice is
    deterministic.

    `before` names the policy that was in force when the name was last matched. One that can't be matched now stays in
    force if it was.
    """

    __slots__ = ("_budget", "_ranked")

    def __init__(self, budget: VhostTimeBudget) -> None:
        self._budget = budget
        self._ranked: list[tuple[Policy, TimedPattern]] = []

    def read(self, policies: Iterable[Policy]) -> Iterator[None]:
        """Read the policies in steps, because compiling a pattern takes milliseconds."""
        for policy in sorted(policies, key=lambda policy: (-policy.priority, policy.name)):
            self._ranked.append((policy, TimedPattern(policy.pattern, self._budget)))
            yield

    @property
    def unjudged(self) -> Iterator[tuple[Policy, str]]:
        """The policies that could not be matched against every name, and why."""
        return ((policy, pattern.problem) for policy, pattern in self._ranked if pattern.problem is not None)

    def verdict_on(self, thing: Exchange | Queue, before: str | None) -> PolicyVerdict:
        """The highest priority of the agent's policies and the broker's policy in force; an equal one of the agent
        wins."""
        targets = _FOR_EXCHANGES if isinstance(thing, Exchange) else _FOR_QUEUES[thing.type]
        undecided: Policy | None = None
        own: Policy | None = None
        for policy, pattern in self._ranked:
            if policy.apply_to not in targets:
                continue
            found = pattern.matches(thing.name)
            if found or (found is None and policy.name == before):
                own = policy
                break
            if found is None:
                undecided = undecided or policy
        winner = _higher(own, thing.policy)
        return PolicyVerdict(winner, undecided is not None and _higher(undecided, winner) is undecided)


def _higher(own: Policy | None, brokers: Policy | None) -> Policy | None:
    if own is None or brokers is None:
        return own or brokers
    return brokers if brokers.priority > own.priority else own


def can_federate_exchange(exchange: Exchange) -> bool:
    """False for the default exchange, for internal ones, and for the agents' own, such as those of their leases: agents
    of several clusters would receive each other's messages."""
    is_own = exchange.name.startswith(AGENT_PREFIX) or _has_purpose(exchange)
    return bool(exchange.name) and not exchange.internal and not is_own


def can_federate_queue(queue: Queue) -> bool:
    """False for streams, from which nothing is ever taken, and for exclusive queues and the agents' own."""
    is_own = queue.name.startswith(AGENT_PREFIX) or _has_purpose(queue)
    return queue.type is not None and not queue.exclusive and not is_own


def _has_purpose(thing: Exchange | Queue) -> bool:
    return any(key == INTERNAL_PURPOSE for key, _ in thing.arguments)


def set_by_argument(exchange: Exchange, place: Place) -> ChosenDefinition | None:
    """The set that a client named when it declared the exchange, as with the 2.x plugin."""
    for key, value in exchange.arguments:
        if key in SET_ARGUMENTS and value.tag == "S":
            return ChosenDefinition(Federation(Choice.SET, value.value), f"argument {key}", place)
    return None


def without_set(arguments: Table) -> Table:
    """The arguments for the upstream exchange, without the set's name, which means nothing there."""
    return tuple((key, value) for key, value in arguments if key not in SET_ARGUMENTS)


def chosen_by_policy(policy: Policy | None) -> ChosenDefinition | None:
    if policy is None or policy.federation is None:
        return None
    return ChosenDefinition(policy.federation, policy.name, policy.place)


def without_effect(
    definitions: VhostDefinitions, exchanges: Iterable[Exchange], queues: Iterable[Queue]
) -> tuple[str, ...]:
    """The policies, sets and exchanges that would federate in a vhost if it weren't a standby's."""
    exchanges = tuple(exchanges)
    by_brokers = (*(each.policy for each in exchanges), *(each.policy for each in queues))
    chosen = [*definitions.policies.values(), *(each for each in by_brokers if each is not None)]
    found = [f"policy {each.name!r}" for each in chosen if each.federation not in {None, OF_STANDBY}]
    found += [f"upstream set {name!r}" for name in definitions.upstream_sets if name != STANDBY]
    found += [f"exchange {name!r}" for name, each in definitions.exchanges.items() if each.upstream_set is not None]
    found += [f"exchange {each.name!r}" for each in exchanges if any(key in SET_ARGUMENTS for key, _ in each.arguments)]
    return tuple(dict.fromkeys(found))
