"""Reads the downstream's definitions and objects by its HTTP API, and links and shovels that its own plugins run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.model import Definitions, Exchange, LinkKind, NativeLink, Policy, Queue, VhostDefinitions, VhostState
from agent.core.rules.names import HOW, PROMOTED, SWITCHOVER
from agent.definitions.sources.downstream_state import Unusable, named, read_exchange, read_queue
from agent.definitions.sources.keeper import Keeper, SourceReading
from agent.definitions.sources.load import Configuration
from agent.definitions.sources.parameters import (
    GLOBAL_PARAMETER,
    Steps,
    read_global,
    reading_parameters,
    reading_policies,
)
from agent.downstream.reading import AT_ONCE, MOST_SILENT, WHERE, DefinitionSource, Parameters, Reading, left_as_it_was
from agent.errors import BrokerError, ConfigurationError, PermanentError, Place, Problem, Severity, TransientError
from agent.management.answers import NodeAnswer
from agent.management.client import ManagementClient
from agent.management.transport import TooLargeError
from agent.slices import steps_in_slices


@dataclass(frozen=True, slots=True)
class NativeLinks:
    links: frozenset[NativeLink] = frozenset()
    warnings: tuple[Problem, ...] = ()


async def read_native_links(client: ManagementClient) -> NativeLinks:
    """The plugin's links; without the permission there is only a warning, since the upstream queue's consumers show
    them too."""
    try:
        answers = await client.federation_links()
    except PermanentError as error:
        message = f"the federation plugin's links can't be read: {error}"
        return NativeLinks(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    return NativeLinks(
        frozenset(
            (LinkKind(answer["type"]), answer["vhost"], answer.get(answer["type"], ""), answer["upstream"])
            for answer in answers or ()
        )
    )


SHOVEL_PLUGIN: Final = "rabbitmq_shovel"


@dataclass(frozen=True, slots=True)
class NativeShovels:
    """`listed` is None where the plugin isn't enabled, as far as its route shows."""

    listed: frozenset[NativeLink] | None = None
    warnings: tuple[Problem, ...] = ()

    def of_plugin(self, parameters: Definitions) -> frozenset[NativeLink]:
        """The shovels that the plugin runs: those that are listed, and all that parameters define, even where it hasn't
        begun with one yet. Empty if the plugin isn't enabled."""
        if self.listed is None:
            return frozenset()
        return self.listed | _defined_by(parameters)


async def read_native_shovels(client: ManagementClient) -> NativeShovels:
    try:
        answers = await client.shovels()
    except PermanentError as error:
        message = f"whether the shovel plugin runs shovels can't be seen: {error}"
        return NativeShovels(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    if answers is None:
        return NativeShovels()
    return NativeShovels(
        frozenset((LinkKind.SHOVEL, each["vhost"], each["name"], "") for each in answers if each.get("vhost"))
    )


async def look_for_plugin(
    client: ManagementClient, shovels: NativeShovels, parameters: Definitions, *, has_statistics: bool
) -> NativeShovels:
    """Shovels after a look for the plugin where its route is missing: it may be enabled without the route, which the
    nodes' statistics show. If a running node may have it, `listed` is empty, so that what parameters define counts as
    run by it; a node whose plugins are not known yet may have it."""
    if shovels.listed is not None or shovels.warnings or not _defined_by(parameters):
        return shovels
    try:
        nodes = await client.nodes()
    except PermanentError as error:
        return NativeShovels(warnings=(_unseen(f"the plugins of the nodes can't be read: {error}"),))
    if not has_statistics:
        return NativeShovels(warnings=(_unseen("the broker's statistics, which show a node's plugins, are disabled"),))
    may_run = any(SHOVEL_PLUGIN in _plugins(node) for node in nodes if node.get("running"))
    return NativeShovels(frozenset()) if may_run else shovels


def _plugins(node: NodeAnswer) -> Collection[str]:
    found = node.get("enabled_plugins")
    return found if isinstance(found, list) else (SHOVEL_PLUGIN,)


def _unseen(reason: str) -> Problem:
    message = (
        "whether the shovel plugin runs the shovels that parameters define can't be seen, so the agent runs them: "
        f"rabbitmq_shovel_management isn't enabled, and {reason}"
    )
    return Problem(Place(WHERE), message, Severity.WARNING)


def _defined_by(parameters: Definitions) -> frozenset[NativeLink]:
    return frozenset(
        (LinkKind.SHOVEL, vhost, name, "") for vhost, found in parameters.vhosts.items() for name in found.shovels
    )


CLUSTER_ID = "internal_cluster_id"
READINGS = 4


async def read_by_api(configuration: Configuration, client: ManagementClient, keeper: Keeper) -> Reading:
    broker = str(configuration.settings.downstream.management[0])
    overview, visible, native, shovels, identity = await asyncio.gather(
        client.overview(), client.vhosts(), read_native_links(client), read_native_shovels(client), _identity(client)
    )
    names = {vhost["name"] for vhost in visible}
    followed, has_failed_over = await _take_standby(configuration, client, keeper)
    defined, looks = await _read_steadily(configuration, client, keeper, names=names)
    unseen = await _out_of_sight(client, keeper, names)
    parameters = keeper.in_force(DefinitionSource.PARAMETERS).definitions
    has_statistics = not overview.get("disable_stats", False)
    shovels = await look_for_plugin(client, shovels, parameters, has_statistics=has_statistics)
    return Reading(
        broker=broker,
        cluster=overview["cluster_name"],
        version=overview["rabbitmq_version"],
        definitions=defined.definitions,
        states={vhost: look.state for vhost, look in looks.items()},
        native_links=native.links | shovels.of_plugin(parameters),
        visible=frozenset(names),
        unseen=unseen,
        followed=followed,
        has_failed_over=has_failed_over,
        identity=identity,
        problems=tuple(problem for look in looks.values() for problem in look.problems),
        warnings=(
            *defined.warnings,
            *native.warnings,
            *shovels.warnings,
            *(
                _no_such_vhost(name, found)
                for name, found in defined.definitions.vhosts.items()
                if name not in names | followed  # what is made here from its source isn't missing
            ),
        ),
    )


async def _take_standby(
    configuration: Configuration, client: ManagementClient, keeper: Keeper
) -> tuple[frozenset[str], bool]:
    """A standby has its links until it is promoted; which is noted on the broker, where any host can do it. Returns the
    vhosts that are followed, and whether it was promoted without its source."""
    standby, definitions = configuration.settings.standby, configuration.definitions
    noted = None if standby is None else await client.global_parameter(PROMOTED)
    if standby is not None and noted is None:
        keeper.take(DefinitionSource.STANDBY, lambda: SourceReading(standby.links(definitions)))
        return frozenset(standby.vhosts), False
    keeper.forget(DefinitionSource.STANDBY)
    is_exact = isinstance(noted, dict) and noted.get(HOW) == SWITCHOVER
    return frozenset(), noted is not None and not is_exact


@dataclass(frozen=True, slots=True)
class _VhostLook:
    """The objects of a vhost; the last successful result if it can't be read now."""

    state: VhostState
    problems: tuple[Problem, ...] = ()


async def _read_steadily(
    configuration: Configuration, client: ManagementClient, keeper: Keeper, *, names: Collection[str]
) -> tuple[SourceReading, dict[str, _VhostLook]]:
    """Read definitions and objects of the same time: exchanges name their policies, and a policy replaced in between
    would look removed."""
    broker = str(configuration.settings.downstream.management[0])
    for _ in range(READINGS):
        policies: _ListedDefinitions | None = None
        if configuration.settings.sources.management:
            policies = await _take_broker(keeper, client, broker, names=names)
        else:
            forget_broker(keeper)
        defined = keeper.current
        concerned = {
            name: defined.verdicts.get(name, {})
            for name in sorted(names)
            if _looks_at_objects(defined.definitions.of(name))
        }
        looks = await _look(client, keeper, broker, concerned)
        if policies is None or policies == await _read_policies(client, broker, names):
            keeper.states = {vhost: look.state for vhost, look in looks.items()}
            return defined, looks
    raise TransientError("policies change faster than they can be read", where=f"{WHERE} {broker}")


async def _out_of_sight(client: ManagementClient, keeper: Keeper, names: Collection[str]) -> frozenset[str]:
    """The vhosts without definitions that may only be inaccessible to the agent's user. Lists of all vhosts'
    definitions silently omit those without a permission, while the list of vhosts has them all for a user with the tag
    monitoring. A request for a single vhost is refused."""
    parameters, policies = keeper.in_force(DefinitionSource.PARAMETERS), keeper.in_force(DefinitionSource.POLICIES)
    defining = {(DefinitionSource.PARAMETERS, vhost) for vhost in parameters.definitions.vhosts}
    defining |= {(DefinitionSource.POLICIES, vhost) for vhost in policies.verdicts}
    silent = keeper.once_defining - defining
    unseen: set[str] = set()
    for vhost in sorted({vhost for _, vhost in silent} & {*names}):
        try:
            await client.policies_of(vhost)
        except BrokerError:
            unseen.add(vhost)
    keeper.once_defining = frozenset(defining | {each for each in silent if each[1] in unseen})
    return frozenset(unseen)


async def _identity(client: ManagementClient) -> str | None:
    try:
        value = await client.global_parameter(CLUSTER_ID)
    except PermanentError:
        return None
    return value if isinstance(value, str) else None


def _looks_at_objects(found: VhostDefinitions) -> bool:
    """True if the objects of the vhost matter: for shovels, for example, they don't."""
    return bool(found.upstreams or found.policies or found.exchanges)


def _no_such_vhost(name: str, found: VhostDefinitions) -> Problem:
    message = f"vhost {name!r} does not exist on the downstream, or the user may not see it"
    sections = (found.upstreams, found.upstream_sets, found.policies, found.exchanges, found.shovels)
    places: Iterable[Place] = (thing.place for section in sections for thing in section.values())
    return Problem(next(iter(places), Place(WHERE)), message, Severity.WARNING)


async def _look(
    client: ManagementClient, keeper: Keeper, broker: str, concerned: Mapping[str, Mapping[str, Policy]]
) -> dict[str, _VhostLook]:
    """Read vhosts, a few at a time; each has the verdicts of its policies."""
    gate, silent = asyncio.Semaphore(AT_ONCE), 0

    async def look(vhost: str, verdicts: Mapping[str, Policy]) -> _VhostLook:
        nonlocal silent
        try:
            async with gate:
                exchanges, queues = await asyncio.gather(client.exchanges(vhost), client.queues(vhost))
        except BrokerError as error:
            silent += isinstance(error, TransientError)
            if silent > MOST_SILENT:
                raise
            return _VhostLook(keeper.states.get(vhost, VhostState()), (left_as_it_was(broker, vhost, error),))
        unusable = Unusable(vhost)
        state = await steps_in_slices(_reading_state(exchanges, queues, verdicts, unusable=unusable))
        return _VhostLook(state, unusable.problems(broker))

    found = await asyncio.gather(*(look(vhost, verdicts) for vhost, verdicts in concerned.items()))
    if found and silent == len(found):  # the fault isn't in one of them
        raise TransientError("; ".join(dict.fromkeys(str(p.message) for look in found for p in look.problems)))
    return dict(zip(concerned, found, strict=True))


def _reading_state(
    exchanges: Parameters, queues: Parameters, verdicts: Mapping[str, Policy], *, unusable: Unusable
) -> Generator[None, None, VhostState]:
    state_exchanges: dict[str, Exchange] = {}
    state_queues: dict[str, Queue] = {}
    for name, answer in named(exchanges):
        exchange = state_exchanges[name] = read_exchange(name, answer, verdicts)
        unusable.note("exchange", name, exchange.unusable)
        yield
    for name, answer in named(queues):
        queue = state_queues[name] = read_queue(name, answer, verdicts)
        unusable.note("queue", name, queue.unusable)
        yield
    return VhostState(state_exchanges, state_queues)


@dataclass(frozen=True, slots=True)
class _ListedDefinitions:
    """The definitions of one kind of all vhosts, except vhosts with too many."""

    items: Parameters
    unread: Mapping[str, Problem] = field(default_factory=dict)


async def _take_broker(
    keeper: Keeper, client: ManagementClient, broker: str, *, names: Collection[str]
) -> _ListedDefinitions:
    """Read each kind of document separately: an error in one doesn't stop the others. Returns the policies."""
    parameters, policies, value = await asyncio.gather(
        _listed(client.parameters, client.parameters_of, broker, names=names),
        _read_policies(client, broker, names),
        _global_parameter(client, broker),
    )

    async def take(source: DefinitionSource, read: Callable[..., Steps], listed: _ListedDefinitions) -> None:
        steps = read(broker, listed.items, keeper.in_force(source), unread=listed.unread)
        defined = await steps_in_slices(steps)
        keeper.take(source, lambda: defined)

    await take(DefinitionSource.PARAMETERS, reading_parameters, parameters)
    await take(DefinitionSource.POLICIES, reading_policies, policies)
    keeper.take(DefinitionSource.GLOBAL, value)
    return policies


async def _global_parameter(client: ManagementClient, broker: str) -> Callable[[], SourceReading]:
    try:
        value = await client.global_parameter(GLOBAL_PARAMETER)
    except TooLargeError as error:
        problem = Problem(Place(broker), str(error))

        def refused() -> SourceReading:
            raise ConfigurationError([problem])

        return refused
    return lambda: read_global(broker, value)


async def _read_policies(client: ManagementClient, broker: str, names: Collection[str]) -> _ListedDefinitions:
    return await _listed(client.policies, client.policies_of, broker, names=names)


async def _listed(
    ask: Callable[[], Awaitable[Parameters]],
    ask_one: Callable[[str], Awaitable[Parameters]],
    broker: str,
    *,
    names: Collection[str],
) -> _ListedDefinitions:
    """Read all definitions at once, or else vhost by vhost: one that defines too much stays unchanged, and the others
    are followed."""
    with suppress(TooLargeError):
        return _ListedDefinitions(await ask())
    items: list[Mapping[str, Any]] = []
    unread: dict[str, Problem] = {}
    for vhost in sorted(names):
        try:
            items += await ask_one(vhost)
        except TooLargeError as error:
            unread[vhost] = left_as_it_was(broker, vhost, error)
    return _ListedDefinitions(items, unread)


def forget_broker(keeper: Keeper) -> None:
    for source in (DefinitionSource.PARAMETERS, DefinitionSource.POLICIES, DefinitionSource.GLOBAL):
        keeper.forget(source)
