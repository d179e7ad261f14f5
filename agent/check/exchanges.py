"""Exchanges that links depend on: the event exchange of the downstream, and alternate exchanges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

from agent.amqp.connect import connect_any
from agent.amqp.declares import ObjectFound, Presence, probe
from agent.check.connections import CONNECTION_NAME, DEFAULT_VHOST, PATIENCE
from agent.check.context import CheckContext
from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.check.policies import PolicyTarget, effective_policy
from agent.core import fields
from agent.core.addresses.uri import AmqpUri
from agent.core.model import ExchangeLink
from agent.core.permissions import EVENTS
from agent.core.status.advice import advice
from agent.errors import BrokerError, FailureKind
from agent.links.ends import DOWNSTREAM

ALTERNATE: Final = "alternate-exchange"


async def judge_event_exchange(context: CheckContext) -> AsyncIterator[Finding]:
    """Without events the agent notices changes when it polls. Of a downstream that lets nobody in, that is reported."""
    if not any(endpoint.where == DOWNSTREAM for endpoint in context.brokers):
        return
    effect = "the agent polls for changes: new bindings take effect after up to 30 s instead of at once"
    try:
        found = (await _look_for([EVENTS], DEFAULT_VHOST, context.apis.downstream))[EVENTS]
    except BrokerError as error:
        # Nobody knows yet whether the plugin is enabled.
        failure, fix = error.failure, ""
        if failure.kind is FailureKind.PERMISSION:
            fix = advice(failure.kind, f"the {DOWNSTREAM}", failures=[failure])
        message = f"{EVENTS!r} can't be looked for in vhost '/', so {effect}: {error}"
        yield Finding.warning(Topic.EVENTS, DOWNSTREAM, message, fix)
        return
    if found.presence is Presence.MISSING:
        message = f"exchange {EVENTS!r} is missing in vhost '/': {effect}"
        yield Finding.warning(Topic.EVENTS, DOWNSTREAM, message, "rabbitmq-plugins enable rabbitmq_event_exchange")


async def judge_alternate_exchanges(context: CheckContext) -> AsyncIterator[Finding]:
    """Find missing ones of federated exchanges: what no queue takes is dropped silently there."""
    wanted: dict[str, dict[str, list[str]]] = {}
    for each in context.links:
        if isinstance(each.link, ExchangeLink):
            name = await _alternate_exchange(each.link, context.apis.of(each.destination))
            if name is not None:
                wanted.setdefault(each.link.vhost, {}).setdefault(name, []).append(each.link.name)
    for vhost, users in wanted.items():
        try:
            found = await _look_for(users, vhost, context.apis.downstream)
        except BrokerError:
            continue  # reported with the address
        for name in (each for each, seen in found.items() if seen.presence is Presence.MISSING):
            exchanges = sorted(set(users[name]))
            yield Finding.warning(
                Topic.ALTERNATE,
                DOWNSTREAM,
                f"alternate exchange {name!r} of exchange {exchanges[0]!r} in vhost {vhost!r} doesn't exist: messages "
                "that no queue takes are dropped",
                f"declare exchange {name!r} in vhost {vhost!r}, or change the argument or policy that names it",
                tuple(f"{vhost}/{exchange}" for exchange in exchanges),
            )


async def _alternate_exchange(link: ExchangeLink, api: BrokerApi | None) -> str | None:
    """An argument wins over a policy."""
    argument = fields.get(link.exchange.arguments, ALTERNATE)
    if argument is not None:
        return str(argument.value)
    policies = None if api is None else await api.policies(link.vhost)
    found = effective_policy(PolicyTarget(link.name, "exchange"), policies or (), ()).values.get(ALTERNATE)
    return found if isinstance(found, str) else None


async def _look_for(names: Iterable[str], vhost: str, downstream: Sequence[AmqpUri]) -> Mapping[str, ObjectFound]:
    inside = [uri.in_vhost(vhost) for uri in downstream]
    async with await connect_any(inside, where=DOWNSTREAM, name=CONNECTION_NAME, within=PATIENCE) as connection:
        return (await probe(connection, exchanges=names)).exchanges
