"""Removes what links kept upstream under a name that their downstream no longer has.

Why: docs/decisions/0037-cluster-renamed.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

import structlog

from agent.amqp.connect import Connection
from agent.amqp.rpc import count_consumers
from agent.core.links.lifecycle import LinkState, Status
from agent.core.links.upstream_steps import upstream_queue_name
from agent.core.model import ExchangeLink, Link, QueueType
from agent.core.rules import names
from agent.errors import BrokerError, TransientError
from agent.links.brokers import Brokers
from agent.links.exchange import upstream_objects
from agent.links.exchange.deletion_monitor import Canary

LOOK_EVERY: Final = 0.5
LONGEST: Final = 30.0  # seconds between looks at a link that may run elsewhere for years
UNUSED_WITHIN: Final = 30.0  # seconds in which a broker has noticed that a connection of this agent is lost

log = structlog.get_logger()


class SweptLink(Protocol):
    """A link that is being run, with its state."""

    link: Link
    state: LinkState
    finished: asyncio.Future[None]


async def sweep(runners: Iterable[SweptLink], brokers: Brokers, former: str) -> None:
    """Remove what is left under the former name, for every link once it runs under the new one; links of a mode that
    keeps all are left alone."""
    swept = (each for each in runners if each.link.cleans_up)
    await asyncio.gather(*(_sweep(runner, brokers, former) for runner in swept))


async def _sweep(runner: SweptLink, brokers: Brokers, former: str) -> None:
    pause = LOOK_EVERY
    while runner.state.status is not Status.RUNNING:
        if runner.finished.done():
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST)
    link = runner.link
    if not isinstance(link, ExchangeLink):  # no other kind names anything upstream after its downstream
        return
    try:
        upstream = brokers.federation_ends(link).source
        async with await brokers.control(upstream) as up:
            queue = upstream_queue_name(link, up.connection.vhost, former)
            if names.are_too_long(queue):  # so there is none
                return
            await _wait_until_unused(up.connection, queue)
            if former == brokers.cluster:  # it has its former name again
                return
            # From here on everything goes to the new queue alone; what is in the former one is in no other.
            for letter in names.LETTERS:
                await upstream_objects.delete_exchange(up.connection, names.internal_exchange(queue, letter))
            await Canary(up.connection, link.remote_name, queue).remove()
            is_quorum = link.settings.queue_type is QueueType.QUORUM
            if is_quorum:
                async with await brokers.trial(upstream, up.connection.uri) as spare:
                    await upstream_objects.delete_queue(spare, queue, if_empty=True, is_quorum=True)
            else:
                await upstream_objects.delete_queue(up.connection, queue, if_empty=True)
    except BrokerError as error:
        log.warning("left under the downstream's former name", link=link.id, former=former, error=str(error))


async def _wait_until_unused(connection: Connection, queue: str) -> None:
    """Wait until the queue has no consumer; raise TransientError if it keeps one: another cluster may have that name by
    now, and what is there is that one's then."""
    loop = asyncio.get_running_loop()
    until = loop.time() + UNUSED_WITHIN
    while await count_consumers(connection, queue):
        if loop.time() > until:
            raise TransientError(f"{connection.where}: queue {queue!r} is kept: it has another consumer")
        await asyncio.sleep(LOOK_EVERY)
