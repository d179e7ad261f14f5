"""Makes an independent cluster of a standby: it is noted there, so the agent ends its links, and follows and trims no
more; then the bindings that waited are made.

Each step can be repeated, on any host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from agent.amqp.connect import Connection
from agent.core.addresses.uri import AmqpUri
from agent.core.migration.objects import Body, ObjectKey, ObjectKind, queue_key
from agent.core.rules.names import AGENT_PREFIX, HELD_BACK, HOW, PROMOTED, PROMOTING, QUEUE_PREFIX, SINCE
from agent.core.standby.copies import bindings_from_json
from agent.core.standby.settings import StandbySettings
from agent.errors import BrokerError, PermanentError, TransientError
from agent.management.changing import DeclaringClient
from agent.management.client import ManagementClient
from agent.migration.standby import promoted
from agent.migration.trimming import lock_copies

ENDS_WITHIN: Final = 45.0
"""Seconds until the agent has read that it is over: without events of the broker it reads every 30 s."""
BETWEEN: Final = 1.0
LOCKED_WITHIN: Final = 5.0
"""Seconds until the lock of a command that was killed is gone."""


class PromotionRunsError(TransientError):
    """Another command promotes the standby at the moment."""


@dataclass(slots=True)
class Promotion:
    """The state before a promotion, and what was done. `since` is when the standby was promoted, and `how`; None while
    it isn't. `here` are the messages of the copies."""

    since: str | None
    how: str | None
    bindings: Mapping[ObjectKey, Body]
    here: Mapping[ObjectKey, int | None]
    is_done: bool = False
    left: dict[ObjectKey, str] = field(default_factory=dict)
    has_agent_ended: bool = False

    @property
    def repeats_at_most(self) -> int | None:
        known = [each for each in self.here.values() if each is not None]
        return sum(known) if len(known) == len(self.here) else None


@asynccontextmanager
async def promoting_alone(uris: Sequence[AmqpUri], vhosts: Iterable[str]) -> AsyncIterator[list[Connection]]:
    """One command at a time promotes: what it has read before holds while none of these connections is lost. Raises
    BrokerError, and PromotionRunsError if another one does."""
    loop = asyncio.get_running_loop()
    ends, locks = loop.time() + LOCKED_WITHIN, list[Connection]()
    async with AsyncExitStack() as opened:
        for vhost in sorted(vhosts):
            while (lock := await lock_copies(uris, vhost, PROMOTING)) is None:
                if loop.time() > ends:
                    raise PromotionRunsError(
                        f"another switchover or failover of vhost {vhost!r} runs: let it end, or end it, and run this "
                        "one again"
                    )
                await asyncio.sleep(BETWEEN)
            opened.push_async_callback(lock.close)
            locks.append(lock)
        yield locks


async def look_at_promotion(standby: ManagementClient, settings: StandbySettings) -> Promotion:
    """Raises BrokerError."""
    here: dict[ObjectKey, int | None] = {}
    for vhost, selection in settings.vhosts.items():
        patterns = [choice.pattern for choice in selection.choices[ObjectKind.QUEUE]]
        for name, depth in (await standby.queue_depths(vhost)).items():
            is_ours = name.startswith((AGENT_PREFIX, QUEUE_PREFIX))
            if not is_ours and any(pattern.matches(name) is not False for pattern in patterns):
                here[queue_key(vhost, name)] = depth
    noted = bindings_from_json(await standby.global_parameter(HELD_BACK))
    held = {key: body for key, body in noted.items() if key.vhost in settings.vhosts}
    since, how = promoted(await standby.global_parameter(PROMOTED))
    return Promotion(since, how, held, here)


async def end_standby(
    standby: DeclaringClient, promotion: Promotion, how: str, has_ended: Callable[[], Awaitable[bool]] | None
) -> None:
    """`has_ended` asks the agent whether its links have ended, None where none answers. A failover after a switchover
    is noted, too: clients may come, so the switchover can't go on. Raises BrokerError."""
    if promotion.since is None or promotion.how != how:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        since = promotion.since or now
        await standby.set_global_parameter(PROMOTED, {SINCE: since, HOW: how})
        promotion.since, promotion.how = since, how
    loop = asyncio.get_running_loop()
    ends = loop.time() + ENDS_WITHIN
    while has_ended is not None and not promotion.has_agent_ended and loop.time() < ends:
        promotion.has_agent_ended = await has_ended()
        await asyncio.sleep(0 if promotion.has_agent_ended else BETWEEN)


async def make_bindings(standby: DeclaringClient, promotion: Promotion) -> None:
    """Those that were held back. What isn't taken is left, with the reason."""
    for key, body in promotion.bindings.items():
        try:
            await standby.declare(key, body)
        except PermanentError as error:
            promotion.left[key] = str(error)
        except BrokerError as error:
            promotion.left[key] = f"{error}: run it again"
    promotion.is_done = not promotion.left
