"""Tries a copy in a scratch vhost of the target, and removes it again."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agent.core.migration.difference import MigrationAction, MigrationVerb
from agent.core.migration.objects import ObjectKey, Objects, in_order, vhost_key
from agent.core.text import in_words
from agent.errors import BrokerError, PermanentError, TransientError
from agent.management.changing import SCRATCH_PREFIX, DeclaringClient
from agent.migration.copying import copy

_AGED: Final = timedelta(hours=1)
_DEADLINE: Final = 1_200.0
"""Of one vhost, and of its removal: both together are over before it is old."""
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAME: Final = re.compile(re.escape(SCRATCH_PREFIX) + r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) [0-9a-f]{8}")
_BETWEEN: Final = 2.0


async def rehearse(target: DeclaringClient, wanted: Objects) -> dict[ObjectKey, str]:
    """Return what the target refuses of all that is wanted, with its reasons. Raises BrokerError if it can't be tried,
    or a scratch vhost can't be removed. One that a killed rehearsal left is removed by a later one."""
    # None that another rehearsal may be using: none lasts an hour.
    for scratch in old_ones([each["name"] for each in await target.vhosts()], _now(target)):
        await _remove(target, scratch)
    found: dict[ObjectKey, str] = {}
    for vhost in sorted({key.vhost for key in wanted}):
        found |= await _in_scratch(target, vhost, wanted)
    return found


def _now(target: DeclaringClient) -> datetime:
    """By the target's clock at its last answer: hosts that rehearse may have others."""
    return target.server_time or datetime.now(UTC)


async def _in_scratch(target: DeclaringClient, vhost: str, wanted: Objects) -> dict[ObjectKey, str]:
    scratch = f"{SCRATCH_PREFIX}{_now(target).strftime(_TIME)} {secrets.token_hex(4)}"
    names = {replace(key, vhost=scratch): key for key in wanted if key.vhost == vhost and key != vhost_key(vhost)}
    actions = [MigrationAction(MigrationVerb.CREATE, key, wanted[names[key]]) for key in in_order(names)]
    is_made = True
    try:
        # A vhost whose making was cancelled may appear after it was removed.
        await _in_any_case(target.declare(vhost_key(scratch), wanted.get(vhost_key(vhost), {})))
        async with asyncio.timeout(_DEADLINE):
            account = await copy(target, actions, {})
    except PermanentError:
        is_made = False  # only that of the vhost itself is raised
        raise
    except TimeoutError as error:
        raise TransientError(f"target: the rehearsal of vhost {vhost!r} took over {in_words(_DEADLINE)}") from error
    finally:
        if is_made:
            await _in_any_case(_remove(target, scratch))
    if account.failed is not None:
        raise account.failed
    return {names[key]: reason.replace(scratch, vhost) for key, reason in account.left.items()}


async def _in_any_case(work: Coroutine[Any, Any, None]) -> None:
    """A cancellation waits until it has ended."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def _remove(target: DeclaringClient, scratch: str) -> None:
    """A vhost with many queues may take minutes, in which the request for it fails."""
    ends = asyncio.get_running_loop().time() + _DEADLINE
    while True:
        try:
            return await target.delete_scratch(scratch)
        except BrokerError as error:
            if isinstance(error, PermanentError) or asyncio.get_running_loop().time() > ends:
                message = f"the scratch vhost {scratch!r} is left at the target: delete it ({error})"
                raise PermanentError(message) from error
        await asyncio.sleep(_BETWEEN)


def old_ones(vhosts: Iterable[str], now: datetime) -> list[str]:
    found = []
    for vhost in vhosts:
        name = _NAME.fullmatch(vhost)
        try:
            made = datetime.strptime(name["time"], _TIME).replace(tzinfo=UTC) if name else now
        except ValueError:
            continue
        if now - made > _AGED:
            found.append(vhost)
    return found
