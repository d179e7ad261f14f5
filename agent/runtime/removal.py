"""The end of a link that is gone for good: what it has built upstream goes too."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from agent.amqp import upstream
from agent.amqp.connect import Connection
from agent.core import backoff, names
from agent.core.model import CleanupMode, Link
from agent.core.plan import upstream_queue_name
from agent.errors import BrokerError, PermanentError, TransientError
from agent.runtime.canary import Canary
from agent.runtime.world import World

PATIENCE: Final = 30.0


async def remove(link: Link, world: World) -> BrokerError | None:
    """Tries for a while; what can't be removed now is left to the operator, with the reason."""
    if link.settings.resource_cleanup_mode is CleanupMode.NEVER:
        return None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    attempt = 1
    while (error := await _try(link, world, deadline)) is not None:
        attempt += 1
        delay = backoff.delay(attempt, link.settings.reconnect_delay, random.random())
        if isinstance(error, PermanentError) or loop.time() + delay > deadline:
            return error
        await asyncio.sleep(delay)
    return None


async def _try(link: Link, world: World, deadline: float) -> BrokerError | None:
    try:
        async with asyncio.timeout_at(deadline):
            up = await world.control(link)
            try:
                queue = upstream_queue_name(link, up.connection.vhost, world.cluster)
                if not names.are_too_long(queue):  # or nothing was ever built
                    await _demolish(up.connection, queue)
                    await Canary(up.connection, link.remote_name, queue).remove()
            finally:
                await world.pool.release(up)
    except BrokerError as error:
        return error
    except TimeoutError:
        return TransientError(f"upstream {link.upstream}: no answer in {PATIENCE:g} s")
    return None


async def _demolish(up: Connection, queue: str) -> None:
    await upstream.delete_queue(up, queue)  # or it is somebody else's now
    for letter in names.LETTERS:
        await upstream.delete_exchange(up, names.internal_exchange(queue, letter))
