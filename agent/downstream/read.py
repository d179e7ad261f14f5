"""Reads everything that the agent needs to know about the downstream cluster once, from all available sources; and
declares the exchanges that the configuration defines and that are missing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.amqp.connect import Server, connect_any
from agent.amqp.declares import Presence, probe
from agent.amqp.wire import methods
from agent.core.addresses.uri import AmqpUri
from agent.core.model import DEFAULT_VHOST, DeclaredExchange, Exchange, VhostState
from agent.core.rules.declarations import like_exchange
from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration
from agent.downstream.read_by_api import forget_broker, read_by_api
from agent.downstream.reading import CONNECTION_NAME, WHERE, Reading
from agent.errors import BrokerError, Place, Problem, Severity, TransientError
from agent.management.client import ManagementClient


async def read_downstream(configuration: Configuration, keeper: Keeper) -> Reading:
    """Passes the broker's definitions to `keeper`; raises BrokerError if the downstream can't be read."""
    addresses = configuration.settings.downstream.management
    if not addresses:
        return await _read_by_amqp(configuration, keeper)
    async with ManagementClient(addresses) as client:
        return await read_by_api(configuration, client, keeper)


async def _read_by_amqp(configuration: Configuration, keeper: Keeper) -> Reading:
    """Read the downstream without the HTTP API: the exchanges of the configuration and the exports, if they exist."""
    forget_broker(keeper)
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
    """The declared exchanges that exist; AMQP doesn't show their attributes, so the declared ones are used."""
    inside = [uri.in_vhost(vhost) for uri in uris]
    try:
        async with await connect_any(inside, where=WHERE, name=CONNECTION_NAME) as connection:
            seen = await probe(connection, exchanges=declared)
    except BrokerError as error:
        return error
    standing = {
        name: one.exchange for name, one in declared.items() if seen.exchanges[name].presence is Presence.EXISTS
    }
    return _Look(connection.server, vhost, standing)


def _joined(exported: Mapping[str, VhostState], seen: Iterable[_Look]) -> dict[str, VhostState]:
    """The exchanges of both; where both have one, that of the export counts, which has more information than AMQP."""
    states = dict(exported)
    for look in seen:
        before = states.get(look.vhost, VhostState())
        states[look.vhost] = replace(before, exchanges={**look.exchanges, **before.exchanges})
    return states


DECLARING_NAME: Final = "federation-agent: declaring exchanges"


async def declare_missing(uris: Sequence[AmqpUri], reading: Reading) -> tuple[str, ...]:
    """Declares those that don't exist yet; returns the errors."""
    notes: list[str] = []
    for vhost, found in reading.definitions.vhosts.items():
        standing = reading.states[vhost].exchanges if vhost in reading.states else {}
        inside = [uri.in_vhost(vhost) for uri in uris]
        for name, declared in found.exchanges.items():
            if name in standing:
                continue
            try:
                async with await connect_any(inside, where=WHERE, name=DECLARING_NAME) as connection:
                    channel, exchange = await connection.channel(), declared.exchange
                    await channel.ask(methods.EXCHANGE_DECLARE, exchange=exchange.name, **like_exchange(exchange))
            except BrokerError as error:
                notes.append(f"{declared.place}: exchange {name!r} can't be declared: {error}")
    return tuple(notes)
