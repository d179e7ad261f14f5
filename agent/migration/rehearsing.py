"""Tries a copy in a scratch vhost of the target, and removes it again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agent.core.migration.difference import MigrationAction, MigrationVerb
from agent.core.migration.objects import Body, ObjectKey, in_order, vhost_key
from agent.core.migration.releases import Objection, ObjectionKind
from agent.core.text.quantities import in_words
from agent.errors import BrokerError, PermanentError, TransientError
from agent.management.declaring import SCRATCH_PREFIX, DeclaringClient
from agent.migration.copying import copy

_AGED: Final = timedelta(hours=1)
_DEADLINE: Final = 1_200.0
"""Of one vhost."""
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_ATTEMPTS: Final = 3
_BETWEEN: Final = 2.0
_ADVICE: Final = "the target refused it in the rehearsal: a copy leaves it out"
_NO_VHOST: Final = "a rehearsal makes a vhost, which needs the tag administrator"


async def rehearse(target: DeclaringClient, wanted: Mapping[ObjectKey, Body], now: datetime) -> list[Objection]:
    """What the target refuses of all that is wanted. Raises BrokerError if it can't be tried, or a scratch vhost can't
    be removed. One that a killed rehearsal left is removed by a later one."""
    await _remove_old(target, now)
    found: list[Objection] = []
    for vhost in sorted({key.vhost for key in wanted}):
        found += await _in_scratch(target, vhost, wanted, now)
    return found


async def _in_scratch(
    target: DeclaringClient, vhost: str, wanted: Mapping[ObjectKey, Body], now: datetime
) -> list[Objection]:
    scratch = f"{SCRATCH_PREFIX}{now.strftime(_TIME)} {secrets.token_hex(4)}"
    names = {replace(key, vhost=scratch): key for key in wanted if key.vhost == vhost}
    names.pop(replace(vhost_key(vhost), vhost=scratch), None)
    actions = [MigrationAction(MigrationVerb.CREATE, key, wanted[names[key]]) for key in in_order(names)]
    try:
        # A vhost whose making was cancelled may appear after it was removed.
        await _in_any_case(target.declare(vhost_key(scratch), wanted.get(vhost_key(vhost), {})))
        async with asyncio.timeout(_DEADLINE):
            account = await copy(target, actions)
    except TimeoutError as error:
        raise TransientError(f"target: the rehearsal of vhost {vhost!r} took over {in_words(_DEADLINE)}") from error
    except PermanentError as error:
        raise PermanentError(f"{error}: {_NO_VHOST}") from error
    finally:
        await _in_any_case(_remove(target, scratch))
    return [
        Objection(ObjectionKind.REFUSED, names[key], reason.replace(scratch, vhost), _ADVICE)
        for key, reason in account.left.items()
    ]


async def _in_any_case(work: Coroutine[Any, Any, None]) -> None:
    """A cancellation waits until it has ended."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def _remove(target: DeclaringClient, scratch: str) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            return await target.delete_scratch(scratch)
        except BrokerError as error:
            if attempt == _ATTEMPTS - 1:
                message = f"the scratch vhost {scratch!r} is left at the target: delete it ({error})"
                raise PermanentError(message) from error
        await asyncio.sleep(_BETWEEN)
    return None


async def _remove_old(target: DeclaringClient, now: datetime) -> None:
    """None that another rehearsal may be using: they don't last an hour."""
    for scratch in old_ones([each["name"] for each in await target.vhosts()], now):
        await _remove(target, scratch)


def old_ones(vhosts: Iterable[str], now: datetime) -> list[str]:
    found = []
    for vhost in vhosts:
        written = vhost.removeprefix(SCRATCH_PREFIX).split(" ", maxsplit=1)[0]
        try:
            made = datetime.strptime(written, _TIME).replace(tzinfo=UTC)
        except ValueError:
            continue
        if vhost.startswith(SCRATCH_PREFIX) and now - made > _AGED:
            found.append(vhost)
    return found
