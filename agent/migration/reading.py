"""Reads the definitions of a cluster's vhosts over its HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from agent.core.migration.objects import ClusterObjects, release_of
from agent.definitions.models.migration import MigrationEnd
from agent.definitions.sources.cluster_objects import ObjectsOfVhosts
from agent.errors import PermanentError, TransientError
from agent.management.client import ManagementClient
from agent.management.declaring import DeclaringClient
from agent.management.transport import TooLargeError

DEADLINE: Final = 120.0
"""For one cluster. Each request has its own, shorter one."""


@dataclass(frozen=True, slots=True)
class ClusterPair:
    """The HTTP APIs of both sides of a migration."""

    source: ManagementClient
    target: DeclaringClient


@asynccontextmanager
async def open_clusters(source: MigrationEnd, target: MigrationEnd) -> AsyncIterator[ClusterPair]:
    async with (
        ManagementClient(source.management, where="source", setting="source.management") as reading,
        DeclaringClient(target.management, where="target", setting="target.management") as declaring,
    ):
        yield ClusterPair(reading, declaring)


async def read_cluster(client: ManagementClient, vhosts: Iterable[str], *, where: str) -> ClusterObjects:
    """What the cluster has in these vhosts, as far as they exist; `where` is its name in errors. Raises BrokerError."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await _read(client, set(vhosts), where)
    except TimeoutError as error:
        raise TransientError(f"{where}: its definitions weren't read within {DEADLINE:g} s") from error


async def _read(client: ManagementClient, vhosts: set[str], where: str) -> ClusterObjects:
    overview = await client.overview()
    release = release_of(overview["rabbitmq_version"])
    if release is None:
        raise PermanentError(f"{where}: its release isn't one of RabbitMQ: {overview['rabbitmq_version'][:40]!r}")
    found = ObjectsOfVhosts()
    for vhost in sorted(vhosts):
        await _read_vhost(client, vhost, found)
    return ClusterObjects(
        overview["cluster_name"],
        release,
        found.objects,
        exclusive=frozenset(found.exclusive),
        in_force=found.in_force,
        parameters=await _parameters(client, vhosts),
        exchange_types=await client.exchange_types() or None,
        unread=tuple(found.unread),
    )


async def _read_vhost(client: ManagementClient, vhost: str, found: ObjectsOfVhosts) -> None:
    settings = await client.vhost(vhost)
    if settings is None:
        return
    lists: tuple[tuple[Callable[[str], Any], Callable[[str, Any], None]], ...] = (
        (client.policies_of, found.add_policies),
        (client.exchanges, found.add_exchanges),
        (client.queues, found.add_queues),
        (client.bindings, found.add_bindings),
    )
    found.add_vhost(vhost, dict(settings))
    for read, add in lists:
        add(vhost, await read(vhost))


async def _parameters(client: ManagementClient, vhosts: set[str]) -> tuple[tuple[str, str, str], ...]:
    try:
        found = await client.parameters()
    except TooLargeError:
        found = [one for vhost in sorted(vhosts) for one in await client.parameters_of(vhost)]
    return tuple((each["vhost"], each["component"], each["name"]) for each in found if each["vhost"] in vhosts)
