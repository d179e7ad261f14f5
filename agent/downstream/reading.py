"""Reads everything that the agent needs to know about the downstream cluster once, from all available sources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

from agent.amqp.connect import Server, connect_any
from agent.amqp.passive_declares import Presence, probe
from agent.core.addresses.uri import AmqpUri
from agent.core.addresses.url_text import encode
from agent.core.model import (
    Binding,
    DeclaredExchange,
    Definitions,
    Exchange,
    Link,
    LinkKind,
    Policy,
    Queue,
    ShovelLink,
    VhostDefinitions,
    VhostState,
)
from agent.definitions.sources.downstream_state import Unusable, binding, named, read_exchange, read_queue, source_of
from agent.definitions.sources.keeper import Keeper, SourceReading
from agent.definitions.sources.load import Configuration
from agent.definitions.sources.parameters import (
    GLOBAL_PARAMETER,
    Steps,
    read_global,
    reading_parameters,
    reading_policies,
)
from agent.downstream.slices import in_slices
from agent.errors import BrokerError, ConfigurationError, PermanentError, Place, Problem, Severity, TransientError
from agent.management.client import ManagementClient
from agent.management.transport import TooLargeError

WHERE = "downstream"
DEFAULT_VHOST = "/"
CLUSTER_ID = "internal_cluster_id"
CONNECTION_NAME = "federation-agent: reading exchanges"
ASKED_ONE_BY_ONE = 20
READINGS = 4

AT_ONCE = 4  # requests whose responses may have up to 64 MiB each
MOST_SILENT = 3  # vhosts; with more, the broker itself doesn't answer

Bindings = Mapping[tuple[str, str], tuple[Binding, ...]]
Parameters = Sequence[Mapping[str, Any]]


class Source(StrEnum):
    """The sources of definitions. Exports belong to the configuration, which names them and refers to their
    definitions."""

    CONFIGURATION = "configuration"
    PARAMETERS = "parameters"
    POLICIES = "policies"
    GLOBAL = "global parameter"


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading the downstream and every source of definitions once."""

    broker: str
    cluster: str
    version: str
    definitions: Definitions
    states: Mapping[str, VhostState]
    native_links: frozenset[tuple[str, str, str]] = frozenset()  # vhost, name and upstream; a shovel's is empty
    bindings: Bindings = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    visible: frozenset[str] | None = None  # None if vhosts can't be listed
    unseen: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()  # of single vhosts: what can't be read there stays unchanged
    identity: str | None = None  # independent of the cluster's name; None if unknown

    def sees(self, vhost: str) -> bool:
        """Whether objects missing from the vhost are known to be deleted, and not only invisible."""
        return vhost not in self.unseen and (self.visible is None or vhost in self.visible)

    def judged(self, link: Link, *, has_known_bindings: bool) -> Link:
        """A link of a vhost that can't be seen, and so of bindings that nobody knows, can't run before it is seen."""
        if isinstance(link, ShovelLink):  # its URIs are all that it needs
            return link
        is_hidden = self.visible is not None and link.vhost not in self.visible
        if not is_hidden or has_known_bindings or link.name in self.definitions.of(link.vhost).bindings:
            return link
        problem = f"vhost {link.vhost!r} does not exist on the downstream, or the agent's user may not see it"
        return replace(link, problem=link.problem or problem)


async def read_downstream(configuration: Configuration, keeper: Keeper) -> Reading:
    """Passes the broker's definitions to `keeper`; raises BrokerError if the downstream can't be read."""
    addresses = configuration.settings.downstream.management
    if not addresses:
        return await _read_by_amqp(configuration, keeper)
    async with ManagementClient(addresses) as client:
        return await _read_by_api(configuration, client, keeper)


@dataclass(frozen=True, slots=True)
class BindingsRead:
    """`bindings` lacks exchanges whose bindings can't be read; unusable bindings are omitted."""

    bindings: Bindings
    problems: tuple[Problem, ...] = ()


async def read_bindings(configuration: Configuration, reading: Reading, links: Collection[Link]) -> BindingsRead:
    """The bindings of federated exchanges only, and static ones."""
    wanted = {(link.vhost, link.name) for link in links if link.kind is LinkKind.EXCHANGE}
    found = BindingsRead({key: reading.bindings.get(key, ()) for key in wanted})
    if configuration.settings.downstream.management:
        async with ManagementClient(configuration.settings.downstream.management) as client:
            found = await _ask_for_bindings(client, wanted, reading)
    static = {key: reading.definitions.of(key[0]).bindings.get(key[1], ()) for key in wanted}
    bindings = {key: (*of_exchange, *static[key]) for key, of_exchange in found.bindings.items()}
    return BindingsRead(bindings, found.problems)


async def _read_by_api(configuration: Configuration, client: ManagementClient, keeper: Keeper) -> Reading:
    broker = str(configuration.settings.downstream.management[0])
    overview, visible, native, shovels, identity = await asyncio.gather(
        client.overview(), client.vhosts(), _native_links(client), _native_shovels(client), _identity(client)
    )
    names = {vhost["name"] for vhost in visible}
    defined, looks = await _read_steadily(configuration, client, keeper, names=names)
    unseen = await _out_of_sight(client, keeper, names)
    return Reading(
        broker=broker,
        cluster=overview["cluster_name"],
        version=overview["rabbitmq_version"],
        definitions=defined.definitions,
        states={vhost: look.state for vhost, look in looks.items()},
        native_links=native.links | shovels.of_plugin(keeper.standing(Source.PARAMETERS).definitions),
        visible=frozenset(names),
        unseen=unseen,
        identity=identity,
        problems=tuple(problem for look in looks.values() for problem in look.problems),
        warnings=(
            *defined.warnings,
            *native.warnings,
            *shovels.warnings,
            *(_no_such_vhost(name, found) for name, found in defined.definitions.vhosts.items() if name not in names),
        ),
    )


@dataclass(frozen=True, slots=True)
class _VhostLook:
    """The objects of a vhost; the last successful result if it can't be read now."""

    state: VhostState
    problems: tuple[Problem, ...] = ()


async def _read_steadily(
    configuration: Configuration, client: ManagementClient, keeper: Keeper, *, names: Collection[str]
) -> tuple[SourceReading, dict[str, _VhostLook]]:
    """Exchanges name their policies, so both must be of the same time: a policy replaced in between would look
    removed."""
    broker = str(configuration.settings.downstream.management[0])
    for _ in range(READINGS):
        policies: _Listed | None = None
        if configuration.settings.sources.management:
            policies = await _take_broker(keeper, client, broker, names=names)
        else:
            _forget_broker(keeper)
        defined = keeper.current
        concerned = [name for name in sorted(names) if _looks_at_objects(defined.definitions.of(name))]
        looker = _Looker(client, keeper, broker)
        found = await asyncio.gather(*(looker.look(vhost, defined.verdicts.get(vhost, {})) for vhost in concerned))
        if found and looker.silent == len(found):  # the fault isn't in one of them
            raise TransientError("; ".join(dict.fromkeys(str(p.message) for look in found for p in look.problems)))
        if policies is None or policies == await _policies(client, broker, names):
            looks = dict(zip(concerned, found, strict=True))
            keeper.states = {vhost: look.state for vhost, look in looks.items()}
            return defined, looks
    raise TransientError(f"{WHERE} {broker}: policies change faster than they can be read")


async def _out_of_sight(client: ManagementClient, keeper: Keeper, names: Collection[str]) -> frozenset[str]:
    """Which vhosts without definitions may only be inaccessible to the agent's user. Lists of all vhosts' definitions
    silently omit those without a permission, while the list of vhosts has them all for a user with the tag monitoring.
    A request for a single vhost is refused.
    """
    parameters, policies = keeper.standing(Source.PARAMETERS), keeper.standing(Source.POLICIES)
    defining = {(Source.PARAMETERS, vhost) for vhost in parameters.definitions.vhosts}
    defining |= {(Source.POLICIES, vhost) for vhost in policies.verdicts}
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


@dataclass(frozen=True, slots=True)
class _Listed:
    """The definitions of one kind of all vhosts, except vhosts with too many."""

    items: Parameters
    unread: Mapping[str, Problem] = field(default_factory=dict)


async def _take_broker(keeper: Keeper, client: ManagementClient, broker: str, *, names: Collection[str]) -> _Listed:
    """Each kind of document separately: an error in one doesn't stop the others. Returns the policies."""
    parameters, policies, value = await asyncio.gather(
        _parameters(client, broker, names), _policies(client, broker, names), _global_parameter(client, broker)
    )
    before = keeper.standing(Source.PARAMETERS)
    await _take(
        keeper, Source.PARAMETERS, reading_parameters(broker, parameters.items, before, unread=parameters.unread)
    )
    before = keeper.standing(Source.POLICIES)
    await _take(keeper, Source.POLICIES, reading_policies(broker, policies.items, before, unread=policies.unread))
    keeper.take(Source.GLOBAL, value)
    return policies


async def _take(keeper: Keeper, source: Source, steps: Steps) -> None:
    defined = await in_slices(steps)
    keeper.take(source, lambda: defined)


async def _global_parameter(client: ManagementClient, broker: str) -> Callable[[], SourceReading]:
    try:
        value = await client.global_parameter(GLOBAL_PARAMETER)
    except TooLargeError as error:
        return partial(_refused, Problem(Place(broker), str(error)))
    return lambda: read_global(broker, value)


def _refused(problem: Problem) -> SourceReading:
    raise ConfigurationError([problem])


async def _parameters(client: ManagementClient, broker: str, names: Collection[str]) -> _Listed:
    try:
        return _Listed(await client.parameters())
    except TooLargeError:
        return await _one_by_one(client.parameters_of, broker, names)


async def _policies(client: ManagementClient, broker: str, names: Collection[str]) -> _Listed:
    try:
        return _Listed(await client.policies())
    except TooLargeError:
        return await _one_by_one(client.policies_of, broker, names)


async def _one_by_one(ask: Callable[[str], Awaitable[Parameters]], broker: str, names: Collection[str]) -> _Listed:
    """Vhost by vhost: one that defines too much stays unchanged, and the others are followed."""
    items: list[Mapping[str, Any]] = []
    unread: dict[str, Problem] = {}
    for vhost in sorted(names):
        try:
            items += await ask(vhost)
        except TooLargeError as error:
            unread[vhost] = _left_as_it_was(broker, vhost, error)
    return _Listed(items, unread)


def _left_as_it_was(broker: str, vhost: str, error: Exception) -> Problem:
    return Problem(Place(f"{broker} vhost {vhost!r}"), f"can't be read, so it stays as it was: {error}")


def _forget_broker(keeper: Keeper) -> None:
    for source in (Source.PARAMETERS, Source.POLICIES, Source.GLOBAL):
        keeper.forget(source)


def _looks_at_objects(found: VhostDefinitions) -> bool:
    """Whether the objects of the vhost matter: for shovels, for example, they don't."""
    return bool(found.upstreams or found.policies or found.exchanges)


def _no_such_vhost(name: str, found: VhostDefinitions) -> Problem:
    message = f"vhost {name!r} does not exist on the downstream, or the user may not see it"
    return Problem(_first_place(found), message, Severity.WARNING)


def _first_place(found: VhostDefinitions) -> Place:
    sections = (found.upstreams, found.upstream_sets, found.policies, found.exchanges, found.shovels)
    places: Iterable[Place] = (thing.place for section in sections for thing in section.values())
    return next(iter(places), Place(WHERE))


class _Looker:
    """Reads vhosts, a few at a time."""

    def __init__(self, client: ManagementClient, keeper: Keeper, broker: str) -> None:
        self._client = client
        self._keeper = keeper
        self._broker = broker
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.silent = 0  # how many gave no response

    async def look(self, vhost: str, verdicts: Mapping[str, Policy]) -> _VhostLook:
        try:
            async with self._gate:
                exchanges, queues = await asyncio.gather(self._client.exchanges(vhost), self._client.queues(vhost))
        except BrokerError as error:
            self.silent += isinstance(error, TransientError)
            if self.silent > MOST_SILENT:
                raise
            before = self._keeper.states.get(vhost, VhostState())
            return _VhostLook(before, (_left_as_it_was(self._broker, vhost, error),))
        unusable = Unusable(vhost)
        state = await in_slices(_reading_state(exchanges, queues, verdicts, unusable=unusable))
        return _VhostLook(state, unusable.problems(self._broker))


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
class _NativeLinks:
    links: frozenset[tuple[str, str, str]] = frozenset()
    warnings: tuple[Problem, ...] = ()


async def _native_links(client: ManagementClient) -> _NativeLinks:
    """The plugin's links; without the permission there is only a warning, since the upstream queue's consumers show
    them too."""
    try:
        answers = await client.federation_links()
    except PermanentError as error:
        message = f"the federation plugin's links can't be read: {error}"
        return _NativeLinks(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    return _NativeLinks(
        frozenset(
            (answer["vhost"], str(answer.get("exchange") or answer.get("queue") or ""), answer["upstream"])
            for answer in answers or ()
        )
    )


@dataclass(frozen=True, slots=True)
class _NativeShovels:
    """`listed` is None where the plugin isn't enabled, as far as it shows."""

    listed: frozenset[tuple[str, str, str]] | None = None
    warnings: tuple[Problem, ...] = ()

    def of_plugin(self, parameters: Definitions) -> frozenset[tuple[str, str, str]]:
        """What the plugin runs: all that parameters define, even where it hasn't begun with one yet."""
        if self.listed is None:
            return frozenset()
        return self.listed | {(vhost, name, "") for vhost, found in parameters.vhosts.items() for name in found.shovels}


async def _native_shovels(client: ManagementClient) -> _NativeShovels:
    try:
        answers = await client.shovels()
    except PermanentError as error:
        message = f"whether the shovel plugin runs shovels can't be seen: {error}"
        return _NativeShovels(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    if answers is None:
        return _NativeShovels()
    return _NativeShovels(frozenset((each["vhost"], each["name"], "") for each in answers if each.get("vhost")))


async def _ask_for_bindings(
    client: ManagementClient, wanted: Collection[tuple[str, str]], reading: Reading
) -> BindingsRead:
    found: dict[tuple[str, str], tuple[Binding, ...]] = {key: () for key in wanted if _has_static(reading, key)}
    problems: list[Problem] = []
    silent = 0
    for vhost in sorted({vhost for vhost, _ in wanted} & reading.states.keys()):
        names = [name for of_vhost, name in sorted(wanted) if of_vhost == vhost]
        unusable = Unusable(vhost)
        try:
            answers = await _answers_about_bindings(client, vhost, names)
        except BrokerError as error:
            silent += isinstance(error, TransientError)
            if silent > MOST_SILENT:
                raise
            problems.append(_left_as_it_was(reading.broker, vhost, error))
            for name in names:
                found.pop((vhost, name), None)
            continue
        by_source = await in_slices(_reading_bindings(answers, frozenset(names), unusable))
        found.update({(vhost, name): tuple(by_source.get(name, ())) for name in names})
        problems += unusable.problems(reading.broker)
    return BindingsRead(found, tuple(problems))


def _has_static(reading: Reading, source: tuple[str, str]) -> bool:
    """Whether there are static bindings, even if the vhost is invisible."""
    vhost, name = source
    return bool(reading.definitions.of(vhost).bindings.get(name))


async def _answers_about_bindings(client: ManagementClient, vhost: str, names: Sequence[str]) -> Parameters:
    """Few federated exchanges are requested one by one; for many, one response with all bindings is faster."""
    if len(names) > ASKED_ONE_BY_ONE:
        with suppress(TooLargeError):  # most may be of exchanges that aren't federated
            return await client.bindings(vhost)
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> Parameters:
        async with gate:
            return await client.bindings_from(vhost, name)

    return [answer for several in await asyncio.gather(*map(ask, names)) for answer in several]


def _reading_bindings(
    answers: Parameters, names: frozenset[str], unusable: Unusable
) -> Generator[None, None, dict[str, list[Binding]]]:
    found: dict[str, list[Binding]] = {}
    for answer in answers:
        if (source := source_of(answer)) in names:
            read = binding(answer)
            if isinstance(read, Binding):
                found.setdefault(source, []).append(read)
            else:
                unusable.note("a binding of exchange", source, str(read))
        yield
    return found


async def _read_by_amqp(configuration: Configuration, keeper: Keeper) -> Reading:
    """Without the HTTP API: the exchanges of the configuration and the exports, if they exist."""
    _forget_broker(keeper)
    definitions, uris = keeper.current.definitions, configuration.settings.downstream.uris
    vhosts = sorted(name for name, found in definitions.vhosts.items() if found.exchanges)
    looks = await asyncio.gather(
        *(_look_by_amqp(uris, vhost, definitions.of(vhost).exchanges) for vhost in vhosts or [DEFAULT_VHOST])
    )
    seen = [look for look in looks if isinstance(look, _Look)]
    unseen = frozenset(name for name, look in zip(vhosts, looks, strict=False) if isinstance(look, BrokerError))
    failures = [look for look in looks if isinstance(look, BrokerError)]
    if not seen or any(isinstance(failure, TransientError) for failure in failures):
        raise failures[0]
    return Reading(
        broker=str(uris[0]),
        cluster=seen[0].server.cluster_name or "",
        version=seen[0].server.version,
        definitions=definitions,
        states=_joined(configuration.states, seen),
        unseen=unseen,
        bindings={
            (vhost, source): found
            for vhost, by_source in configuration.bindings.items()
            for source, found in by_source.items()
        },
        warnings=(
            *keeper.current.warnings,
            *(Problem(Place(WHERE), str(failure), Severity.WARNING) for failure in failures),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    server: Server
    vhost: str
    exchanges: Mapping[str, Exchange]


async def _look_by_amqp(
    uris: Iterable[AmqpUri], vhost: str, declared: Mapping[str, DeclaredExchange]
) -> _Look | BrokerError:
    """Which of the declared exchanges exist; AMQP doesn't show their attributes, so the declared ones are used."""
    inside = [in_vhost(uri, vhost) for uri in uris]
    try:
        async with await connect_any(inside, where=WHERE, name=CONNECTION_NAME) as connection:
            seen = await probe(connection, exchanges=declared)
    except BrokerError as error:
        return error
    standing = {
        name: Exchange(name, one.type, one.durable, one.auto_delete, one.internal, one.arguments)
        for name, one in declared.items()
        if seen.exchanges[name].presence is Presence.EXISTS
    }
    return _Look(connection.server, vhost, standing)


def in_vhost(uri: AmqpUri, vhost: str) -> AmqpUri:
    """The downstream's URI for one of its vhosts; a vhost that the URI itself names doesn't count."""
    return replace(uri, path="/" + encode(vhost))


def _joined(exported: Mapping[str, VhostState], seen: Iterable[_Look]) -> dict[str, VhostState]:
    """An export has more information on an exchange than AMQP."""
    states = dict(exported)
    for look in seen:
        before = states.get(look.vhost, VhostState())
        states[look.vhost] = replace(before, exchanges={**look.exchanges, **before.exchanges})
    return states
