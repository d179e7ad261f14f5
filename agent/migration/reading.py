"""What the HTTP APIs of two clusters show: the definitions of their vhosts, and the clients that are connected, of
which there may be none while messages change sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from agent.amqp.connect import PRODUCT
from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    queue_key,
    release_of,
    vhost_key,
)
from agent.core.settings import DownstreamSettings
from agent.core.text import listed
from agent.definitions.sources.cluster_objects import KINDS, ObjectsOfVhosts
from agent.errors import PermanentError, TransientError
from agent.management.answers import ClientAnswer
from agent.management.changing import DeclaringClient
from agent.management.client import ManagementClient
from agent.management.transport import TooLargeError

Reads: TypeAlias = tuple[Callable[[str], Awaitable[Sequence[Any]]], ...]
DEADLINE: Final = 120.0
"""For one cluster. Each request has its own, shorter one."""


@dataclass(frozen=True, slots=True)
class ClusterPair:
    """The HTTP APIs of both sides of a migration."""

    source: ManagementClient
    target: DeclaringClient


@asynccontextmanager
async def open_clusters(source: DownstreamSettings, target: DownstreamSettings) -> AsyncIterator[ClusterPair]:
    async with (
        ManagementClient(source.management, where="source", setting="source.management") as reading,
        DeclaringClient(target.management, where="target", setting="target.management") as declaring,
    ):
        yield ClusterPair(reading, declaring)


async def read_cluster(client: ManagementClient, vhosts: Iterable[str], *, is_source: bool) -> ClusterObjects:
    """Read the cluster's objects in these vhosts, as far as they exist; of the source also the parameters. A vhost of
    the target that is half made counts as missing, so that it is made. Raises BrokerError."""
    where = "source" if is_source else "target"
    try:
        async with asyncio.timeout(DEADLINE):
            return await _read(client, set(vhosts), where, is_source=is_source)
    except TimeoutError as error:
        raise TransientError(f"its definitions weren't read within {DEADLINE:g} s", where=where) from error


async def read_operator_policies(client: ManagementClient, cluster: ClusterObjects) -> Objects:
    """Those of the cluster's vhosts that were read. Raises BrokerError."""
    found = ObjectsOfVhosts()
    for vhost in [key.vhost for key in cluster.objects if key.kind is ObjectKind.VHOST]:
        found.add(ObjectKind.POLICY, vhost, [{**each} for each in await client.operator_policies_of(vhost)])
    return found.objects


async def depths_of(client: ManagementClient, vhosts: Iterable[str]) -> dict[ObjectKey, int | None]:
    """The messages of all queues, seconds old; None where the broker doesn't show it. Raises BrokerError."""
    return {
        queue_key(vhost, name): depth for vhost in vhosts for name, depth in (await client.queue_depths(vhost)).items()
    }


async def _read(client: ManagementClient, vhosts: set[str], where: str, *, is_source: bool) -> ClusterObjects:
    overview = await client.overview()
    release, types = release_of(overview["rabbitmq_version"]), overview.get("exchange_types")
    if release is None:
        raise PermanentError(f"its release isn't one of RabbitMQ: {overview['rabbitmq_version'][:40]!r}", where=where)
    named = [each.get("name") for each in types if isinstance(each, dict)] if isinstance(types, list) else []
    found = ObjectsOfVhosts()
    reads: Reads = (client.policies_of, client.exchanges, client.queues, client.bindings)
    for vhost in await client.vhosts():
        name = vhost["name"]
        if name in vhosts:
            found.add_vhost(name, {**vhost})
            for kind, read in zip(KINDS.values(), reads, strict=True):
                found.add(kind, name, await read(name))
    if not is_source:
        for name in await client.half_made_vhosts(vhosts & found.empty_vhosts()):
            del found.objects[vhost_key(name)]
    return ClusterObjects(
        overview["cluster_name"],
        release,
        found.objects,
        frozenset(found.passing),
        await _parameters(client, vhosts) if is_source else (),
        frozenset(name for name in named if isinstance(name, str)) or None,
        found.unread,
    )


async def _parameters(client: ManagementClient, vhosts: set[str]) -> tuple[tuple[str, str, str], ...] | None:
    try:
        found = await client.parameters()
    except TooLargeError:
        return None
    return tuple((each["vhost"], each["component"], each["name"]) for each in found if each["vhost"] in vhosts)


LONGEST_NAME: Final = 255


async def clients_of(client: ManagementClient, where: str, vhosts: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Those of the vhosts, but for agents' own connections, whose users each vhost has. Raises BrokerError."""
    await _demand_sight(client, where)
    return [
        f"{_described(each)} in vhost {vhost!r} of the {where}"
        for vhost, users in vhosts.items()
        for each in await client.clients(vhost)
        if not is_ours(each, users)
    ]


def refusal_of(clients: Sequence[str]) -> str:
    return f"clients are connected: {listed(clients)}; end them, and keep them out until it is done"


async def _demand_sight(client: ManagementClient, where: str) -> None:
    """Raise PermanentError if others' connections aren't shown to the user."""
    if not (await client.whoami()).sees_others:
        what = "whether clients are connected can't be seen: the user of its HTTP API needs the tag monitoring"
        raise PermanentError(what, where=where)


def is_ours(client: ClientAnswer, users: AbstractSet[str]) -> bool:
    user: Any = client.get("user")
    return _property(client, "product") == PRODUCT and isinstance(user, str) and user in users


def _described(client: ClientAnswer) -> str:
    name = _property(client, "connection_name")
    named = f" ({name[:LONGEST_NAME]})" if isinstance(name, str) and name else ""
    user, host = (str(client.get(each, "?"))[:LONGEST_NAME] for each in ("user", "peer_host"))
    return f"user {user!r} of host {host}{named}"


def _property(client: ClientAnswer, name: str) -> Any:
    properties: Any = client.get("client_properties")
    return properties.get(name) if isinstance(properties, dict) else None
