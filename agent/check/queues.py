"""What links depend on: queues and their policies, alternate exchanges, the event exchange."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from agent.amqp.connect import connect_any
from agent.amqp.passive_declares import ExchangeFound, Presence, probe
from agent.check.connections import CONNECTION_NAME, DEFAULT_VHOST, PATIENCE, Endpoint
from agent.check.context import LinkEnds, Scene
from agent.check.delivery_limits import Vhost, judge_returns
from agent.check.findings import Finding, Level, Topic
from agent.check.http_api import Api
from agent.check.policies import (
    Effective,
    Listed,
    effective,
    judge_destination,
    judge_own,
    judge_probed,
)
from agent.check.releases import Opened
from agent.core import fields
from agent.core.addresses.uri import AmqpUri
from agent.core.links.reconcile import upstream_queue_name
from agent.core.model import ExchangeLink, Link, QueueLink, ShovelLink
from agent.core.permissions import EVENTS
from agent.core.rules.objects import queue_arguments
from agent.core.status.advice import advice
from agent.downstream.reading import Bindings
from agent.errors import BrokerError, Failure, FailureKind
from agent.links.ends import DOWNSTREAM

ALTERNATE: Final = "alternate-exchange"
MOST_QUEUES: Final = 1_000  # whose policies are looked at


async def judge_queues(scene: Scene, bindings: Bindings) -> AsyncIterator[Finding]:
    """The queues that links take messages from, and those that they bring them to."""
    looked: set[tuple[Endpoint, str]] = set()
    vhosts: dict[Endpoint, Vhost] = {}
    for each in scene.links:
        if len(looked) >= MOST_QUEUES:
            message = f"policies and arguments of queues after the first {MOST_QUEUES} weren't looked at"
            yield Finding(Level.NOTE, Topic.LIMITS, "queues", message)
            return
        sources = [name for name in [_source(each, scene)] if name is not None]
        targets = _targets(each, bindings)
        for endpoint, names, is_source in ((each.source, sources, True), (each.destination, targets, False)):
            fresh = [name for name in names if (endpoint, name) not in looked][:MOST_QUEUES]
            looked.update((endpoint, name) for name in fresh)
            async for found in _judge(each, endpoint, fresh, vhosts, scene=scene, is_source=is_source):
                yield found


async def _judge(
    each: LinkEnds,
    endpoint: Endpoint,
    names: Sequence[str],
    vhosts: dict[Endpoint, Vhost],
    *,
    scene: Scene,
    is_source: bool,
) -> AsyncIterator[Finding]:
    api, shown = scene.apis.of(endpoint), scene.shown(endpoint)
    if not names or shown is None:
        return
    is_own = is_source and isinstance(each.link, ExchangeLink)
    if api is None:
        if is_source and shown.limits_deliveries and (not is_own or _own_type(each) == "quorum"):
            yield Finding(
                Level.NOTE,
                Topic.RELEASE,
                shown.where,
                f"whether quorum queues in vhost {shown.vhost!r} have a delivery limit can't be judged without the "
                f"broker's HTTP API (--api NAME=URL); releases from 4.0 on drop a message that was returned 20 times",
                "see docs/operations.md, Upstream queues of type quorum",
            )
        return
    queues = await api.queues(shown.vhost)
    policies, operators = await api.policies(shown.vhost), await api.operator_policies(shown.vhost)
    if queues is None:
        return
    vhost = vhosts.setdefault(endpoint, Vhost(shown.vhost, queues.values(), policies or ()))
    for name in names:
        queue = queues.get(name)
        if queue is None:
            if not is_own:
                continue
            queue = Listed(name, _own_type(each), _own_arguments(each))
        found = effective(queue, policies or (), operators or ())
        is_known = policies is not None and operators is not None
        judged = _judged_source(shown, vhost, queue, found, link=each.link, is_known=is_known)
        for finding in judged if is_source else judge_destination(shown.where, shown.vhost, queue, found):
            yield finding


def _judged_source(
    shown: Opened, vhost: Vhost, queue: Listed, found: Effective, *, link: Link, is_known: bool
) -> Iterator[Finding]:
    """Where not all policies are known, which is reported, none of them can be advised to change."""
    is_own = isinstance(link, ExchangeLink)
    if is_own:
        yield from judge_own(shown.where, shown.vhost, queue, found)
    if isinstance(link, ExchangeLink) and link.settings.probe is not None:
        yield from judge_probed(shown.where, shown.vhost, queue, found)
    if is_known:
        limits = shown.limits_deliveries
        yield from judge_returns(shown.where, vhost, queue, found, limits_deliveries=limits, is_own=is_own)


def _own_type(each: LinkEnds) -> str:
    return each.link.settings.queue_type.value if isinstance(each.link, ExchangeLink) else ""


def _own_arguments(each: LinkEnds) -> Mapping[str, Any]:
    found = queue_arguments(each.link.settings) if isinstance(each.link, ExchangeLink) else ()
    return {key: field.value for key, field in found}


def _source(each: LinkEnds, scene: Scene) -> str | None:
    link, shown = each.link, scene.shown(each.source)
    match link:
        case ExchangeLink():
            return None if shown is None else upstream_queue_name(link, shown.vhost, scene.cluster)
        case QueueLink():
            return link.remote_name
        case ShovelLink():
            return link.shovel.source.keys.get("src-queue")


def _targets(each: LinkEnds, bindings: Bindings) -> list[str]:
    link = each.link
    match link:
        case ExchangeLink():
            found = bindings.get((link.vhost, link.name), ())
            return list(dict.fromkeys(one.destination for one in found if not one.destination_is_exchange))
        case QueueLink():
            return [link.name]
        case ShovelLink():
            return [name for name in [link.shovel.destination.keys.get("dest-queue")] if name is not None]


async def judge_events(scene: Scene) -> AsyncIterator[Finding]:
    """Without events the agent notices changes when it polls. Of a downstream that lets nobody in, that is reported."""
    if not any(endpoint.where == DOWNSTREAM for endpoint in scene.opened):
        return
    message = "the agent polls for changes: new bindings take effect after up to 30 s instead of at once"
    try:
        found = (await _look(scene.apis.downstream, DEFAULT_VHOST, [EVENTS]))[EVENTS]
    except BrokerError as error:
        why = f"{EVENTS!r} can't be looked for in vhost '/', so {message}: {error}"
        yield Finding(Level.WARNING, Topic.EVENTS, DOWNSTREAM, why, _to_look(error.failure))
        return
    if found.presence is Presence.MISSING:
        why = f"exchange {EVENTS!r} is missing in vhost '/': {message}"
        yield Finding(Level.WARNING, Topic.EVENTS, DOWNSTREAM, why, "rabbitmq-plugins enable rabbitmq_event_exchange")


def _to_look(failure: Failure) -> str:
    """What lets the agent look; whether the plugin is enabled isn't known."""
    is_denied = failure.kind is FailureKind.PERMISSION
    return advice(failure.kind, f"the {DOWNSTREAM}", failures=[failure]) if is_denied else ""


async def judge_alternates(scene: Scene) -> AsyncIterator[Finding]:
    """Alternate exchanges of federated exchanges that don't exist: what no queue takes is dropped silently."""
    wanted: dict[str, dict[str, list[str]]] = {}
    for each in scene.links:
        if isinstance(each.link, ExchangeLink):
            api = scene.apis.of(each.destination)
            for name in await _alternates(each.link, api):
                wanted.setdefault(each.link.vhost, {}).setdefault(name, []).append(each.link.name)
    for vhost, users in wanted.items():
        try:
            found = await _look(scene.apis.downstream, vhost, users)
        except BrokerError:
            continue  # reported with the address
        for name in (each for each, seen in found.items() if seen.presence is Presence.MISSING):
            exchanges = sorted(set(users[name]))
            yield Finding(
                Level.WARNING,
                Topic.ALTERNATE,
                DOWNSTREAM,
                f"alternate exchange {name!r} of exchange {exchanges[0]!r} in vhost {vhost!r} doesn't exist: messages "
                "that no queue takes are dropped",
                f"declare exchange {name!r} in vhost {vhost!r}, or change the argument or policy that names it",
                tuple(f"{vhost}/{exchange}" for exchange in exchanges),
            )


async def _alternates(link: ExchangeLink, api: Api | None) -> list[str]:
    """An argument wins over a policy."""
    argument = fields.get(link.exchange.arguments, ALTERNATE)
    if argument is not None:
        return [str(argument.value)]
    policies = None if api is None else await api.policies(link.vhost)
    found = effective(Listed(link.name, "exchange"), policies or (), ()).values.get(ALTERNATE)
    return [found] if isinstance(found, str) else []


async def _look(downstream: Sequence[AmqpUri], vhost: str, names: Iterable[str]) -> Mapping[str, ExchangeFound]:
    inside = [uri.in_vhost(vhost) for uri in downstream]
    async with await connect_any(inside, where=DOWNSTREAM, name=CONNECTION_NAME, within=PATIENCE) as connection:
        return (await probe(connection, exchanges=names)).exchanges
