"""Looks at the source of a migration for the verdict on it. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from agent.core.addresses.uri import Mechanism
from agent.core.migration.fences import PREFIX, Permissions, read_fence
from agent.core.migration.objects import ClusterObjects, ObjectKind, is_of_federation, policy_key, queue_key
from agent.core.migration.selection import VhostSelection, choose
from agent.core.migration.verdict import (
    SeenConnection,
    SeenQueue,
    SeenVhost,
    SourceLook,
    SourceVerdict,
    judge,
)
from agent.core.settings import DownstreamSettings
from agent.core.text import listed
from agent.errors import PermanentError, TransientError
from agent.management.answers import ClientAnswer, ConsumerAnswer, NodeAnswer, QueueContentsAnswer
from agent.management.client import ManagementClient
from agent.migration.reading import DEADLINE, read_cluster

APART: Final = 12.0
"""Seconds between two looks: what brokers show is five seconds old, unless they are configured otherwise."""
_AUTHORITY: Final = "rabbitmq_auth_backend_"
_SHOVEL: Final = "rabbitmq_shovel"
_FEDERATION: Final = "federation"
_BY_BROKERS: Final = ("amq.rabbitmq.event", "amq.rabbitmq.log", "amq.rabbitmq.trace")
_DELAYED: Final = "x-delayed-message"
_DEAD_LETTERS: Final = "dead-letter-exchange"
_MOST_NAMED: Final = 3


async def verdict_on(
    client: ManagementClient,
    selection: Mapping[str, VhostSelection],
    movers: Collection[str],
    *,
    apart: float = APART,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[SourceVerdict, ClusterObjects, SourceLook]:
    """Also what there was at the second look. Raises BrokerError and ConfigurationError."""
    await need_administrator(client)
    _, first = await look(client, selection)
    await sleep(apart)
    objects, last = await look(client, selection)
    return judge((first, last), choose(objects, selection), selection.keys(), movers), objects, last


def movers_of(source: DownstreamSettings) -> frozenset[str]:
    """The users with whom the move consumes from the source; who logs in by a certificate isn't known here."""
    return frozenset(uri.login[0] for uri in source.uris if Mechanism.EXTERNAL not in uri.mechanisms)


async def need_administrator(client: ManagementClient) -> None:
    """Others are shown fewer connections and parameters than there are, or none, without being refused."""
    who = await client.whoami()
    if not who.is_administrator:
        raise PermanentError(
            f"source: user {who.name!r} isn't shown all connections and permissions, so nothing can be proved: "
            "give it the tag administrator"
        )


async def look(client: ManagementClient, selection: Mapping[str, VhostSelection]) -> tuple[ClusterObjects, SourceLook]:
    try:
        async with asyncio.timeout(DEADLINE):
            return await _look(client, selection)
    except TimeoutError as error:
        raise TransientError(f"source: it wasn't looked at within {DEADLINE:g} s") from error


async def _look(client: ManagementClient, selection: Mapping[str, VhostSelection]) -> tuple[ClusterObjects, SourceLook]:
    """Read permissions, fences and connections first: what is published until then is seen by the next look."""
    seen = await fence_look(client)
    plugins, doubts = _of_nodes(await client.nodes())
    if (await client.overview()).get("disable_stats") is not False:
        doubts.append("it has no statistics (management_agent.disable_metrics_collector, or management.disable_stats)")
    doubts += [
        f"{plugin} lets in users that no fence reaches" for plugin in sorted(plugins) if plugin.startswith(_AUTHORITY)
    ]
    objects = await read_cluster(client, selection, is_source=True)
    parameters = [(each["vhost"], each["component"], each["name"]) for each in await client.parameters()]
    if any(plugin.startswith(_SHOVEL) for plugin in plugins):
        doubts += await _shovels(client, parameters)
    federated = {vhost for vhost, component, _ in parameters if component == "federation-upstream"}
    federates = any(_FEDERATION in plugin for plugin in plugins)
    vhosts: dict[str, SeenVhost] = {}
    for each in await client.vhosts():
        name = each["name"]
        try:
            answers = await client.queue_contents(name)
        except PermanentError as error:
            vhosts[name] = SeenVhost(doubts=(f"it can't be read: {error}",))
            continue
        holders = await _holders(client, name, answers)
        queues = {found["name"]: _queue(found, name, objects, holders) for found in answers}
        why = [*_published_by_brokers(name, queues, objects)] if name in selection else []
        if federates and name in federated:
            why.append("links of the federation plugin may publish into it: remove its upstreams there")
        vhosts[name] = SeenVhost(queues, tuple(why))
    return objects, replace(seen, vhosts=vhosts, doubts=(*seen.doubts, *doubts))


def now_at(client: ManagementClient) -> datetime:
    """By the source's clock, at its last answer."""
    found = client.server_time
    if found is None:
        raise PermanentError("source: its HTTP API doesn't tell the time (the header Date): is a proxy before it?")
    return found


async def fence_look(client: ManagementClient) -> SourceLook:
    """The permissions, fences and connections of the source; its doubts are fences that can't be read."""
    permissions = {
        (each["vhost"], each["user"]): Permissions(each["configure"], each["write"], each["read"])
        for each in await client.permissions()
    }
    named = [each for each in await client.global_parameters() if each["name"].startswith(PREFIX)]
    read = {each["name"]: read_fence(each["name"], each.get("value")) for each in named}
    doubts = tuple(
        f"the global parameter {name!r} isn't what a fence writes, so what its user had isn't known: look at it, give "
        "that back by hand, and delete it"
        for name, fence in read.items()
        if fence is None
    )
    connections = [_connection(each) for each in await client.all_clients()]
    by_pair = {(fence.vhost, fence.user): fence for fence in read.values() if fence is not None}
    return SourceLook(now_at(client).timestamp(), {}, connections, permissions, by_pair, doubts)


def _of_nodes(nodes: Iterable[NodeAnswer]) -> tuple[set[str], list[str]]:
    """The plugins of all nodes, and why not all is known of them."""
    plugins: set[str] = set()
    doubts = []
    for node in nodes:
        found = node.get("enabled_plugins")
        if node.get("running") is not True:
            doubts.append(f"node {node['name']!r} isn't running")
        elif not isinstance(found, list) or node.get("partitions") != []:
            doubts.append(f"node {node['name']!r} shows no plugins, or a partition: it sees not all of the cluster")
        else:
            plugins.update(each for each in found if isinstance(each, str))
    return plugins, doubts


async def _shovels(client: ManagementClient, parameters: Iterable[tuple[str, str, str]]) -> list[str]:
    names = {f"{vhost}/{name}" for vhost, component, name in parameters if component == "shovel"}
    running = await client.shovels()
    if running is None:
        return ["shovels of its own configuration aren't known: enable rabbitmq_shovel_management"]
    names |= {f"{each.get('vhost', '')}/{each['name']}" for each in running}
    found = listed(sorted(map(repr, names)), _MOST_NAMED)
    return [f"its own shovels may publish anywhere: delete {found}"] if names else []


def _published_by_brokers(vhost: str, queues: Mapping[str, SeenQueue], objects: ClusterObjects) -> Iterator[str]:
    """The ways by which messages may get into queues without a connection."""
    kinds = {ObjectKind.EXCHANGE, ObjectKind.BINDING}
    unread = [str(key) for key in objects.unread if key.vhost == vhost and key.kind in kinds]
    if unread:
        yield f"what these bring isn't known, as they can't be read: {listed(unread, _MOST_NAMED)}"
    for key, body in objects.objects.items():
        if key.vhost != vhost:
            continue
        if key.kind is ObjectKind.EXCHANGE and body["type"] == _DELAYED:
            yield f"{key} may hold messages that nobody can see: delete it once it holds none"
        if key.kind is ObjectKind.BINDING and key.name in _BY_BROKERS:
            end = queues.get(key.destination)
            if key.to_exchange or end is None or not end.ends_with_connection or end.dead_letters:
                yield f"the broker itself publishes by {key}"


async def _holders(
    client: ManagementClient, vhost: str, queues: Iterable[QueueContentsAnswer]
) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    if any(queue.get("messages_unacknowledged") for queue in queues):
        for each in await client.holders(vhost):
            if isinstance(name := each["queue"].get("name"), str):
                found.setdefault(name, []).append(_holder(each))
    return found


def _holder(consumer: ConsumerAnswer) -> str:
    details = consumer.get("channel_details")
    details = details if isinstance(details, dict) else {}
    host, user = (details.get(name, "?") for name in ("peer_host", "user"))
    return f"consumer {consumer['consumer_tag']!r} of host {host} (user {user})"


def _queue(
    answer: QueueContentsAnswer, vhost: str, objects: ClusterObjects, holders: Mapping[str, list[str]]
) -> SeenQueue:
    name, kind, arguments = answer["name"], answer.get("type"), answer.get("arguments")
    key = queue_key(vhost, name)
    policy = answer.get("policy")
    in_force = (
        objects.objects.get(policy_key(vhost, policy)) if isinstance(policy, str) and policy else {"definition": {}}
    )
    return SeenQueue(
        kind if isinstance(kind, str) else "",
        state if isinstance(state := answer.get("state"), str) else None,
        _number(answer.get("messages")),
        _number(answer.get("messages_ready")),
        _number(answer.get("messages_unacknowledged")),
        _length(answer.get("members")),
        _length(answer.get("online")),
        answer.get("exclusive") is True,
        # Of a policy that came meanwhile nothing is known.
        not isinstance(arguments, dict)
        or f"x-{_DEAD_LETTERS}" in arguments
        or in_force is None
        or _DEAD_LETTERS in in_force["definition"],
        is_of_federation(key, objects.objects),
        tuple(holders.get(name, ())),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, list) else None


def _connection(answer: ClientAnswer) -> SeenConnection:
    properties, at = answer.get("client_properties"), answer.get("connected_at")
    texts = (answer.get(name) for name in ("vhost", "user", "protocol", "peer_host"))
    vhost, user, protocol, host = (each if isinstance(each, str) else None for each in texts)
    product = properties.get("product") if isinstance(properties, dict) else None
    return SeenConnection(
        answer["name"],
        vhost,
        user,
        protocol,
        host,
        product if isinstance(product, str) else None,
        at / 1000 if isinstance(at, int) else None,
    )
