"""Looks at the destinations of shovels for a plan; their sources are looked at as upstreams are."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from agent.amqp.connect import connect_any
from agent.amqp.declares import Found, Presence, probe
from agent.core.addresses.uri import AmqpUri
from agent.core.links.plan import Sight
from agent.core.links.reconcile import QueueSeen, Seen
from agent.core.model import Link, QueueDestination, ShovelLink
from agent.core.rules.hops import Site
from agent.downstream.reading import CONNECTION_NAME, DEFAULT_VHOST
from agent.errors import UNKNOWN, BrokerError
from agent.links.ends import reachable

PATIENCE: Final = 10.0  # seconds for a broker to let us in
AT_ONCE: Final = 20  # connections


async def look_at_destinations(downstream: Sequence[AmqpUri], links: Iterable[Link]) -> dict[str, Sight]:
    by_uris: dict[tuple[AmqpUri, ...], list[ShovelLink]] = defaultdict(list)
    for link in links:
        if isinstance(link, ShovelLink):
            by_uris[reachable(link.shovel.destination_uris, DEFAULT_VHOST, downstream)].append(link)
    gate = asyncio.Semaphore(AT_ONCE)

    async def look(uris: tuple[AmqpUri, ...], found: list[ShovelLink]) -> Mapping[str, Sight]:
        async with gate:
            return await _look_at(uris, found)

    sights = await asyncio.gather(*(look(uris, found) for uris, found in by_uris.items()))
    return {link_id: sight for seen in sights for link_id, sight in seen.items()}


async def _look_at(uris: tuple[AmqpUri, ...], links: list[ShovelLink]) -> Mapping[str, Sight]:
    queues = {link.shovel.destination.queue for link in links if isinstance(link.shovel.destination, QueueDestination)}
    connect = partial(
        connect_any,
        where="shovel destination",
        name=CONNECTION_NAME,
        default_vhost=DEFAULT_VHOST,
        within=PATIENCE,
    )
    try:
        async with await connect(random.sample(uris, len(uris))) as connection:
            broker = str(connection.uri)
            site = Site(connection.server.cluster_name, connection.vhost)
            exchanges = {*filter(None, map(_exchange_of, links))}
            found = await probe(
                connection, queues=queues, exchanges=exchanges, spare=partial(connect, [connection.uri])
            )
    except BrokerError as error:
        unseen = Sight(str(uris[0]), error=str(error), failure=error.failure)
        return {link.id: unseen for link in links}
    return {link.id: _sight(link, broker, site, found=found) for link in links}


def _exchange_of(link: ShovelLink) -> str:
    destination = link.shovel.destination
    return "" if isinstance(destination, QueueDestination) else destination.exchange or ""


def _sight(link: ShovelLink, broker: str, site: Site, *, found: Found) -> Sight:
    destination = link.shovel.destination
    if isinstance(destination, QueueDestination):
        queue = found.queues[destination.queue]
        if queue.presence not in {Presence.EXISTS, Presence.MISSING}:
            error = f"shovel destination: queue {destination.queue!r}: {queue.detail}"
            failure = replace(queue.failure or UNKNOWN, is_permanent=queue.presence is Presence.REFUSED)
            return Sight(broker, site, error=error, failure=failure)
        exists = queue.presence is Presence.EXISTS
        return Sight(broker, site, Seen(queue=QueueSeen(queue.messages, queue.consumers) if exists else None))
    exchange = found.exchanges.get(destination.exchange or "")
    return Sight(broker, site, Seen(exchange_exists=exchange is not None and exchange.presence is Presence.EXISTS))
