"""Tries a copy in a scratch vhost of the target, and removes it again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from agent.core.migration.difference import MigrationAction, MigrationVerb
from agent.core.migration.objects import Body, ObjectKey, ObjectKind, in_order, vhost_key
from agent.core.migration.releases import Objection, ObjectionKind
from agent.errors import BrokerError, PermanentError
from agent.management.declaring import SCRATCH_PREFIX, DeclaringClient
from agent.migration.copying import copy

_AGED: Final = timedelta(hours=1)
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_ATTEMPTS: Final = 3
_BETWEEN: Final = 2.0
_ADVICE: Final = "the target refused it in the rehearsal: a copy leaves it out"
_NO_VHOST: Final = "a rehearsal needs an HTTP user with the tag administrator at the target: it makes a vhost"


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
    names = {_moved(key, scratch): key for key in wanted if key.vhost == vhost}
    actions = [MigrationAction(MigrationVerb.CREATE, key, wanted[names[key]]) for key in in_order(names)]
    if not any(key.kind is ObjectKind.VHOST for key in names):
        actions.insert(0, MigrationAction(MigrationVerb.CREATE, vhost_key(scratch), {}))
    try:
        account = await copy(target, actions)
    finally:
        await _in_any_case(asyncio.ensure_future(_remove(target, scratch)))
    if vhost_key(scratch) in account.left:
        raise PermanentError(f"target: {account.left[vhost_key(scratch)]}: {_NO_VHOST}")
    return [Objection(ObjectionKind.REFUSED, names[key], reason, _ADVICE) for key, reason in account.left.items()]


def _moved(key: ObjectKey, vhost: str) -> ObjectKey:
    return replace(key, vhost=vhost, name=vhost if key.kind is ObjectKind.VHOST else key.name)


async def _in_any_case(removing: asyncio.Future[None]) -> None:
    """A cancellation waits until it has ended."""
    try:
        await asyncio.shield(removing)
    except asyncio.CancelledError:
        await removing
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
    for scratch in old_ones((each["name"] for each in await target.vhosts()), now):
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
