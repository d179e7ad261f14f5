"""Everything the agent needs to know of the cluster it stands beside, read once, from whatever can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.amqp.connect import Server, connect_any
from agent.amqp.probe import Presence, probe
from agent.core.model import (
    Binding,
    DeclaredExchange,
    Definitions,
    Exchange,
    Link,
    LinkKind,
    Policy,
    VhostDefinitions,
    VhostState,
)
from agent.core.uri import AmqpUri
from agent.core.url_text import encode
from agent.definitions.downstream_state import bindings_by_source, vhost_state
from agent.definitions.keeper import Keeper, Told
from agent.definitions.load import Configuration
from agent.definitions.parameters import GLOBAL_PARAMETER, read_global, read_parameters, read_policies
from agent.errors import BrokerError, PermanentError, Place, Problem, Severity, TransientError
from agent.management.client import ManagementClient

WHERE = "downstream"
DEFAULT_VHOST = "/"
CLUSTER_ID = "internal_cluster_id"
CONNECTION_NAME = "federation-agent: looking at what stands"
# Few federated exchanges are asked for one by one; for many, one answer with all bindings is quicker.
ASKED_ONE_BY_ONE = 20
READINGS = 4

Bindings = Mapping[tuple[str, str], tuple[Binding, ...]]


class Source(StrEnum):
    """Where definitions come from. Exports belong to the configuration: it names them, and refers to what they say."""

    CONFIGURATION = "configuration"
    PARAMETERS = "parameters"
    POLICIES = "policies"
    GLOBAL = "global parameter"


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the downstream and at every source of definitions."""

    broker: str
    cluster: str
    version: str
    definitions: Definitions
    states: Mapping[str, VhostState]
    native_links: frozenset[tuple[str, str, str]] = frozenset()
    bindings: Bindings = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    visible: frozenset[str] | None = None  # None where no list of vhosts can be had
    unseen: frozenset[str] = frozenset()
    identity: str | None = None  # the same whatever the cluster is called; None where it can't be known

    def sees(self, vhost: str) -> bool:
        """Whether what is missing in the vhost is known to be gone, and not merely out of sight."""
        return vhost not in self.unseen and (self.visible is None or vhost in self.visible)


async def read_downstream(configuration: Configuration, keeper: Keeper) -> Reading:
    """Has `keeper` take what the broker defines; raises BrokerError where the downstream can't be read."""
    addresses = configuration.settings.downstream.management
    if not addresses:
        return await _read_by_amqp(configuration, keeper)
    async with ManagementClient(addresses) as client:
        return await _read_by_api(configuration, client, keeper)


async def read_bindings(configuration: Configuration, reading: Reading, links: Collection[Link]) -> Bindings:
    """The bindings of the exchanges that are federated, and of no others; static ones besides."""
    wanted = {(link.vhost, link.name) for link in links if link.kind is LinkKind.EXCHANGE}
    found: Bindings = {key: reading.bindings.get(key, ()) for key in wanted}
    if configuration.settings.downstream.management:
        async with ManagementClient(configuration.settings.downstream.management) as client:
            found = await _ask_for_bindings(client, {key for key in wanted if key[0] in reading.states})
    static = {key: reading.definitions.of(key[0]).bindings.get(key[1], ()) for key in wanted}
    return {key: (*found.get(key, ()), *static[key]) for key in wanted}


async def _read_by_api(configuration: Configuration, client: ManagementClient, keeper: Keeper) -> Reading:
    broker = str(configuration.settings.downstream.management[0])
    overview, visible, native, identity = await asyncio.gather(
        client.overview(), client.vhosts(), _native_links(client), _identity(client)
    )
    names = {vhost["name"] for vhost in visible}
    told, states = await _read_steadily(configuration, client, keeper, names=names)
    return Reading(
        broker=broker,
        cluster=overview["cluster_name"],
        version=overview["rabbitmq_version"],
        definitions=told.definitions,
        states=states,
        native_links=native.links,
        visible=frozenset(names),
        identity=identity,
        warnings=(
            *told.warnings,
            *native.warnings,
            *(_no_such_vhost(name, found) for name, found in told.definitions.vhosts.items() if name not in names),
        ),
    )


async def _read_steadily(
    configuration: Configuration, client: ManagementClient, keeper: Keeper, *, names: Collection[str]
) -> tuple[Told, dict[str, VhostState]]:
    """Exchanges name their policies, so both must be of one moment: a policy replaced in between would look lifted."""
    broker = str(configuration.settings.downstream.management[0])
    for _ in range(READINGS):
        policies: object = None
        if configuration.settings.sources.management:
            policies = await _take_broker(keeper, client, broker)
        else:
            _forget_broker(keeper)
        told = keeper.current
        concerned = [name for name in sorted(names) if _looks_at_objects(told.definitions.of(name))]
        found = await asyncio.gather(*(_state_of(client, vhost, told.verdicts.get(vhost, {})) for vhost in concerned))
        if policies is None or policies == await client.policies():
            return told, dict(zip(concerned, found, strict=True))
    raise TransientError(f"{WHERE} {broker}: policies change faster than they can be read")


async def _identity(client: ManagementClient) -> str | None:
    try:
        value = await client.global_parameter(CLUSTER_ID)
    except PermanentError:
        return None
    return value if isinstance(value, str) else None


async def _take_broker(keeper: Keeper, client: ManagementClient, broker: str) -> object:
    """Each kind of document by itself: a mistake in one stops no other from being followed. Answers the policies."""
    parameters, policies, value = await asyncio.gather(
        client.parameters(), client.policies(), client.global_parameter(GLOBAL_PARAMETER)
    )
    keeper.take(Source.PARAMETERS, lambda: read_parameters(broker, [dict(parameter) for parameter in parameters]))
    keeper.take(Source.POLICIES, lambda: read_policies(broker, [dict(policy) for policy in policies]))
    keeper.take(Source.GLOBAL, lambda: read_global(broker, value))
    return policies


def _forget_broker(keeper: Keeper) -> None:
    for source in (Source.PARAMETERS, Source.POLICIES, Source.GLOBAL):
        keeper.forget(source)


def _looks_at_objects(found: VhostDefinitions) -> bool:
    """Whether what stands in the vhost matters: shovels, say, don't care."""
    return bool(found.upstreams or found.policies or found.exchanges)


def _no_such_vhost(name: str, found: VhostDefinitions) -> Problem:
    message = f"vhost {name!r} does not exist on the downstream, or the user may not see it"
    return Problem(_first_place(found), message, Severity.WARNING)


def _first_place(found: VhostDefinitions) -> Place:
    sections = (found.upstreams, found.upstream_sets, found.policies, found.exchanges, found.shovels)
    places: Iterable[Place] = (thing.place for section in sections for thing in section.values())
    return next(iter(places), Place(WHERE))


async def _state_of(client: ManagementClient, vhost: str, verdicts: Mapping[str, Policy]) -> VhostState:
    exchanges, queues = await asyncio.gather(client.exchanges(vhost), client.queues(vhost))
    return vhost_state([dict(exchange) for exchange in exchanges], [dict(queue) for queue in queues], verdicts)


@dataclass(frozen=True, slots=True)
class _NativeLinks:
    links: frozenset[tuple[str, str, str]] = frozenset()
    warnings: tuple[Problem, ...] = ()


async def _native_links(client: ManagementClient) -> _NativeLinks:
    """What the plugin runs; a user who may not know gets a warning, since the upstream queue's consumers tell too."""
    try:
        answers = await client.federation_links()
    except PermanentError as error:
        message = f"whether the federation plugin runs links can't be seen: {error}"
        return _NativeLinks(warnings=(Problem(Place(WHERE), message, Severity.WARNING),))
    return _NativeLinks(
        frozenset(
            (answer["vhost"], answer.get("exchange") or answer.get("queue") or "", answer["upstream"])
            for answer in answers or ()
        )
    )


async def _ask_for_bindings(client: ManagementClient, wanted: Collection[tuple[str, str]]) -> Bindings:
    found: dict[tuple[str, str], tuple[Binding, ...]] = {}
    for vhost in sorted({vhost for vhost, _ in wanted}):
        names = [name for of_vhost, name in sorted(wanted) if of_vhost == vhost]
        if len(names) > ASKED_ONE_BY_ONE:
            answers = [await client.bindings(vhost)]
        else:
            answers = await asyncio.gather(*(client.bindings_from(vhost, name) for name in names))
        by_source = bindings_by_source(dict(answer) for several in answers for answer in several)
        found.update({(vhost, name): by_source.get(name, ()) for name in names})
    return found


async def _read_by_amqp(configuration: Configuration, keeper: Keeper) -> Reading:
    """Without the HTTP API: the exchanges of the configuration and the exports, as far as they stand."""
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
    """Which of the declared exchanges stand; AMQP doesn't tell their attributes, so the declared ones are believed."""
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
    """What an export tells of an exchange is more than what AMQP does."""
    states = dict(exported)
    for look in seen:
        before = states.get(look.vhost, VhostState())
        states[look.vhost] = replace(before, exchanges={**look.exchanges, **before.exchanges})
    return states
