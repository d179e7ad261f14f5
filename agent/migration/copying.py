"""Makes at the target what it lacks, once, or again and again, also through errors of either side.

What is there already is found, so each copy can be repeated.

A rehearsal tries a copy in a scratch vhost of the target, and removes it again.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from agent.core.links.waits import delay
from agent.core.migration.difference import MigrationAction, MigrationPlan, MigrationVerb, needs, plan_migration
from agent.core.migration.objects import (
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    in_order,
    type_of,
    vhost_key,
)
from agent.core.migration.selection import VhostSelection, choose
from agent.core.model import QueueType
from agent.core.text import in_words
from agent.errors import AgentError, BrokerError, ConfigurationError, PermanentError, TransientError
from agent.management.changing import SCRATCH_PREFIX, DeclaringClient
from agent.management.transport import NotTakenError
from agent.migration.reading import ClusterPair, depths_of, read_cluster
from agent.tasks import gather_both

AT_A_TIME: Final = 8
MOST_FAILURES: Final = 20
"""Requests that fail, without an answer to any between them; then the target is left alone."""
BETWEEN: Final = 10.0
LONGEST_WAIT: Final = 20.0
"""After errors; with the time that a round takes, what changes is copied within 30 s."""
REFUSED_AGAIN: Final = 300.0
LOOK_EVERY: Final = 2.0
LOOKS: Final = 8
"""Brokers show a new queue's messages within 5 s, or as their statistics interval is set."""
HALF_MADE: Final = (
    "the broker shows no messages in this quorum queue, not even 0. If a node of the target is down, or the queue was "
    "just declared, that is why: copy again in a minute. If it stays so, it is half made, as brokers leave it where an "
    "earlier copy was cut off, and takes no message: delete it, and copy again"
)


@dataclass(slots=True)
class CopyAccount:
    """The result of the actions: done by kind, or left with a reason each; of these the target itself `refused` some.
    What is left because of an error, `failed` being the last one, it may take another time."""

    done: Counter[ObjectKind] = field(default_factory=Counter)
    left: dict[ObjectKey, str] = field(default_factory=dict)
    refused: set[ObjectKey] = field(default_factory=set)
    failed: TransientError | None = None
    in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class CopyRound:
    """The plan of one copy, and its result."""

    plan: MigrationPlan
    account: CopyAccount


async def look(
    clusters: ClusterPair, selection: Mapping[str, VhostSelection], *, with_traps: bool = True
) -> tuple[MigrationPlan, ClusterObjects, ClusterObjects]:
    """The difference of both sides, as they are now, and these. Raises BrokerError and ConfigurationError."""
    source, target = await gather_both(
        read_cluster(clusters.source, selection, is_source=True),
        read_cluster(clusters.target, selection, is_source=False),
    )
    chosen = choose(source, selection)
    return plan_migration(source, target, chosen, time.process_time, with_traps=with_traps), source, target


async def copy_once(clusters: ClusterPair, selection: Mapping[str, VhostSelection]) -> CopyRound:
    plan, _, target = await look(clusters, selection)
    account = await copy(clusters.target, plan.actions, plan.unread)
    stood = {key for key in plan.wanted if key in target.objects and key.kind is ObjectKind.QUEUE}
    quorum = {key for key in stood if type_of(target.objects[key]) == QueueType.QUORUM}
    if account.failed is None:  # otherwise its account is what there is to say
        with suppress(BrokerError):
            account.left |= dict.fromkeys(sorted(await half_made(clusters.target, quorum), key=str), HALF_MADE)
    return CopyRound(plan, account)


async def half_made(
    target: DeclaringClient,
    quorum: Set[ObjectKey],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> set[ObjectKey]:
    """Those of the quorum queues of which the broker shows no messages for so long, though it does so of others: an
    earlier copy that was cut off may have left them without a process."""
    silent, shown, looks = set(quorum), False, 0
    while silent and looks < LOOKS:
        await sleep(LOOK_EVERY if looks else 0)
        depths = await depths_of(target, {key.vhost for key in quorum})
        silent &= {key for key, depth in depths.items() if depth is None}
        shown, looks = any(depth is not None for depth in depths.values()), looks + 1
    return silent if shown else set()


async def copy(
    target: DeclaringClient, actions: Sequence[MigrationAction], left: Mapping[ObjectKey, str]
) -> CopyAccount:
    """The actions have to be in order. What is `left` already isn't tried, nor what needs it."""
    account = CopyAccount(left=dict(left))
    for _, phase in groupby(actions, key=lambda action: action.key.kind):
        waiting = [each for each in phase if each.key not in account.left]
        waiting.reverse()

        async def work(waiting: list[MigrationAction] = waiting) -> None:
            while waiting:
                await _declare(target, waiting.pop(), account)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(work())
    return account


async def _declare(target: DeclaringClient, action: MigrationAction, account: CopyAccount) -> None:
    key = action.key
    missing = next((each for each in needs(key) if each in account.left), None)
    if missing is not None:
        account.left[key] = f"it needs {missing}, which is left"
    elif account.in_a_row >= MOST_FAILURES:
        account.left[key] = f"not tried: {MOST_FAILURES} requests failed, the last with: {account.failed}"
    else:
        try:
            await target.declare(key, action.body)
            if key.kind is ObjectKind.VHOST:
                await target.make_whole(key.vhost)
        except TransientError as error:
            account.left[key] = str(error)
            account.failed = error
            account.in_a_row += 1
            return
        except PermanentError as error:
            account.left[key] = error.what if isinstance(error, NotTakenError) else str(error)
            account.refused.add(key)
        else:
            account.done[key.kind] += 1
        account.in_a_row = 0


@dataclass(slots=True)
class Follower:
    """Copies again and again. What the target refused is tried rarely: each time is an error in its log."""

    clusters: ClusterPair
    selection: Mapping[str, VhostSelection]
    report: Callable[[CopyRound | AgentError], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    chance: Callable[[], float] = lambda: 0.5
    planned: Callable[[], Awaitable[MigrationPlan]] | None = None
    """Makes the plan to carry out instead of one with all that the target lacks."""
    _refused: dict[ObjectKey, tuple[Body, float, str]] = field(default_factory=dict)

    async def run(self) -> None:
        """Until it is cancelled. Raises ConfigurationError where that is so from the beginning."""
        attempt, has_begun = 1, False
        while True:
            try:
                found = await self._round()
            except (BrokerError, ConfigurationError) as error:
                if isinstance(error, ConfigurationError) and not has_begun:
                    raise
                attempt += 1
                self.report(error)
                await self.sleep(delay(attempt, LONGEST_WAIT, self.chance()))
            else:
                attempt, has_begun = 1, True
                self.report(found)
                await self.sleep(BETWEEN)

    async def _plan(self) -> MigrationPlan:
        plan, _, _ = await look(self.clusters, self.selection, with_traps=False)
        return plan

    async def _round(self) -> CopyRound:
        plan = await self._plan() if self.planned is None else await self.planned()
        bodies, now = {action.key: action.body for action in plan.actions}, self.clock()
        self._refused = {
            key: (body, until, reason)
            for key, (body, until, reason) in self._refused.items()
            if now < until and bodies.get(key) == body
        }
        left = {key: reason for key, (_, _, reason) in self._refused.items()}
        account = await copy(self.clusters.target, plan.actions, {**left, **plan.unread})
        for key in account.refused:
            self._refused[key] = bodies[key], now + REFUSED_AGAIN, account.left[key]
        return CopyRound(plan, account)


_LEFT_BEHIND_AFTER: Final = timedelta(hours=1)
_REHEARSED_WITHIN: Final = 1_200.0
"""Of one vhost, and of its removal: both together are over before it is old."""
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SCRATCH_NAME: Final = re.compile(re.escape(SCRATCH_PREFIX) + r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) [0-9a-f]{8}")
_REMOVED_EVERY: Final = 2.0


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
        try:
            # A vhost whose making was cancelled may appear after it was removed.
            await _in_any_case(target.declare(vhost_key(scratch), wanted.get(vhost_key(vhost), {})))
        except PermanentError:
            is_made = False
            raise
        await target.make_whole(scratch)
        async with asyncio.timeout(_REHEARSED_WITHIN):
            account = await copy(target, actions, {})
    except TimeoutError as error:
        raise TransientError(
            f"target: the rehearsal of vhost {vhost!r} took over {in_words(_REHEARSED_WITHIN)}"
        ) from error
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
    ends = asyncio.get_running_loop().time() + _REHEARSED_WITHIN
    while True:
        try:
            return await target.delete_scratch(scratch)
        except BrokerError as error:
            if isinstance(error, PermanentError) or asyncio.get_running_loop().time() > ends:
                message = f"the scratch vhost {scratch!r} is left at the target: delete it ({error})"
                raise PermanentError(message) from error
        await asyncio.sleep(_REMOVED_EVERY)


def old_ones(vhosts: Iterable[str], now: datetime) -> list[str]:
    found = []
    for vhost in vhosts:
        name = _SCRATCH_NAME.fullmatch(vhost)
        try:
            made = datetime.strptime(name["time"], _TIME).replace(tzinfo=UTC) if name else now
        except ValueError:
            continue
        if now - made > _LEFT_BEHIND_AFTER:
            found.append(vhost)
    return found
