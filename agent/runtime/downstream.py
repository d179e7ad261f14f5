"""Everything the agent needs to know of the cluster it stands beside, read once, from whatever can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agent.amqp.connect import connect_any
from agent.amqp.probe import Presence, probe
from agent.core.model import Binding, Definitions, Exchange, Link, LinkKind, VhostState
from agent.core.settings import DownstreamSettings
from agent.definitions.downstream_state import bindings_by_source, vhost_state
from agent.definitions.exports import MAX_BYTES, Export, read_export
from agent.definitions.load import Configuration
from agent.definitions.merge import merge
from agent.definitions.parameters import GLOBAL_PARAMETER, BrokerDefinitions, broker_definitions
from agent.definitions.read_file import UnreadableError, read_file
from agent.errors import ConfigurationError, Place, Problem
from agent.management.answers import FederationLinkAnswer
from agent.management.client import ManagementClient

WHERE = "downstream"
CONNECTION_NAME = "federation-agent: looking at what stands"
# Few federated exchanges are asked for one by one; for many, one answer with all bindings is quicker.
ASKED_ONE_BY_ONE = 20

Bindings = Mapping[tuple[str, str], tuple[Binding, ...]]


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


async def read_downstream(configuration: Configuration) -> Reading:
    """Raises BrokerError where the downstream can't be read, ConfigurationError where sources are bad or conflict."""
    exports = [(path, read_export_file(path)) for path in configuration.settings.sources.files]
    settings = configuration.settings.downstream
    if not settings.management:
        return await _read_by_amqp(configuration, exports, settings)
    async with ManagementClient(settings.management) as client:
        return await _read_by_api(configuration, exports, client)


async def read_bindings(configuration: Configuration, reading: Reading, links: Collection[Link]) -> Bindings:
    """The bindings of the exchanges that are federated, and of no others; static ones besides."""
    wanted = {(link.vhost, link.name) for link in links if link.kind is LinkKind.EXCHANGE}
    found: Bindings = {key: reading.bindings.get(key, ()) for key in wanted}
    if configuration.settings.downstream.management:
        async with ManagementClient(configuration.settings.downstream.management) as client:
            found = await _ask_for_bindings(client, wanted)
    static = {key: reading.definitions.of(key[0]).bindings.get(key[1], ()) for key in wanted}
    return {key: (*found.get(key, ()), *static[key]) for key in wanted}


def read_export_file(path: str) -> Export:
    try:
        data = read_file(path, MAX_BYTES)
    except UnreadableError as error:
        raise ConfigurationError([Problem(Place(path, 1, 1), str(error))]) from error
    return read_export(data, path)


async def _read_by_api(
    configuration: Configuration, exports: list[tuple[str, Export]], client: ManagementClient
) -> Reading:
    broker = str(configuration.settings.downstream.management[0])
    overview, visible, answers = await asyncio.gather(client.overview(), client.vhosts(), client.federation_links())
    told = await _definitions_of(client, broker) if configuration.settings.sources.management else BrokerDefinitions()
    definitions = merge(
        [(configuration.source, configuration.definitions), *_of_exports(exports), (broker, told.definitions)]
    )
    # A vhost without upstreams has no links to federate what stands in it.
    concerned = [v["name"] for v in visible if definitions.of(v["name"]).upstreams]
    states = await asyncio.gather(*(_state_of(client, vhost, told) for vhost in concerned))
    return Reading(
        broker=broker,
        cluster=overview["cluster_name"],
        version=overview["rabbitmq_version"],
        definitions=definitions,
        states=dict(zip(concerned, states, strict=True)),
        native_links=_native_links(answers or ()),
        warnings=(*configuration.warnings, *_warnings_of(exports), *told.warnings),
    )


async def _definitions_of(client: ManagementClient, broker: str) -> BrokerDefinitions:
    parameters, policies, value = await asyncio.gather(
        client.parameters(), client.policies(), client.global_parameter(GLOBAL_PARAMETER)
    )
    return broker_definitions(
        broker,
        parameters=[dict(parameter) for parameter in parameters],
        policies=[dict(policy) for policy in policies],
        global_value=value,
    )


async def _state_of(client: ManagementClient, vhost: str, told: BrokerDefinitions) -> VhostState:
    exchanges, queues = await asyncio.gather(client.exchanges(vhost), client.queues(vhost))
    return vhost_state(
        [dict(exchange) for exchange in exchanges],
        [dict(queue) for queue in queues],
        told.policies.get(vhost, {}),
    )


def _native_links(answers: Iterable[FederationLinkAnswer]) -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (answer["vhost"], answer.get("exchange") or answer.get("queue") or "", answer["upstream"]) for answer in answers
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


async def _read_by_amqp(
    configuration: Configuration, exports: list[tuple[str, Export]], settings: DownstreamSettings
) -> Reading:
    """Without the HTTP API: the exchanges of the configuration and the exports, as far as they stand."""
    definitions = merge([(configuration.source, configuration.definitions), *_of_exports(exports)])
    states = {vhost: state for _, export in exports for vhost, state in export.states.items()}
    for vhost, found in definitions.vhosts.items():
        if found.exchanges and vhost not in states:
            states[vhost] = await _standing(settings, vhost, definitions)
    async with await connect_any(settings.uris, where=WHERE, name=CONNECTION_NAME) as connection:
        server = connection.server
    return Reading(
        broker=str(settings.uris[0]),
        cluster=server.cluster_name or "",
        version=server.version,
        definitions=definitions,
        states=states,
        bindings={
            (vhost, source): found
            for _, export in exports
            for vhost, by_source in export.bindings.items()
            for source, found in by_source.items()
        },
        warnings=(*configuration.warnings, *_warnings_of(exports)),
    )


async def _standing(settings: DownstreamSettings, vhost: str, definitions: Definitions) -> VhostState:
    """Which of the declared exchanges stand; AMQP doesn't tell their attributes, so the declared ones are believed."""
    declared = definitions.of(vhost).exchanges
    async with await connect_any(settings.uris, where=WHERE, name=CONNECTION_NAME, default_vhost=vhost) as connection:
        seen = await probe(connection, exchanges=declared)
    return VhostState(
        exchanges={
            name: Exchange(name, one.type, one.durable, one.auto_delete, one.internal, one.arguments)
            for name, one in declared.items()
            if seen.exchanges[name].presence is Presence.EXISTS
        }
    )


def _of_exports(exports: Iterable[tuple[str, Export]]) -> list[tuple[str, Definitions]]:
    return [(path, export.definitions) for path, export in exports]


def _warnings_of(exports: Iterable[tuple[str, Export]]) -> tuple[Problem, ...]:
    return tuple(warning for _, export in exports for warning in export.warnings)
