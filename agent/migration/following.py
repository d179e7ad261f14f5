"""One round of a copy, and a copy that goes on, also through errors of either side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.core.links.backoff import delay
from agent.core.migration.difference import MigrationAction, MigrationPlan, plan_migration
from agent.core.migration.objects import Body, ClusterObjects, ObjectKey
from agent.core.migration.selection import VhostSelection, choose
from agent.errors import AgentError, BrokerError, ConfigurationError
from agent.migration.copying import CopyAccount, copy
from agent.migration.reading import ClusterPair, read_cluster
from agent.tasks import gather_both

BETWEEN: Final = 10.0
LONGEST_WAIT: Final = 20.0
"""After errors; with the time that a round takes, what changes is copied within 30 s."""
REFUSED_AGAIN: Final = 300.0


@dataclass(frozen=True, slots=True)
class CopyRound:
    """What was to do, and what became of it."""

    plan: MigrationPlan
    account: CopyAccount


async def look(
    clusters: ClusterPair, selection: Mapping[str, VhostSelection]
) -> tuple[MigrationPlan, tuple[ClusterObjects, ClusterObjects]]:
    """The difference of both sides, as they are now. Raises BrokerError and ConfigurationError."""
    source, target = await gather_both(
        read_cluster(clusters.source, selection, where="source"),
        read_cluster(clusters.target, selection, where="target"),
    )
    return plan_migration(source, target, choose(source, selection)), (source, target)


async def copy_once(clusters: ClusterPair, selection: Mapping[str, VhostSelection]) -> CopyRound:
    plan, _ = await look(clusters, selection)
    return CopyRound(plan, await copy(clusters.target, plan.actions))


@dataclass(slots=True)
class Follower:
    """Copies again and again. What the target refused is tried rarely: each time is an error in its log."""

    clusters: ClusterPair
    selection: Mapping[str, VhostSelection]
    report: Callable[[CopyRound | AgentError], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    chance: Callable[[], float] = lambda: 0.5
    _refused: dict[ObjectKey, tuple[Body, float]] = field(default_factory=dict)

    async def run(self) -> None:
        """Until it is cancelled."""
        attempt = 1
        while True:
            try:
                self.report(await self._round())
            except (BrokerError, ConfigurationError) as error:
                attempt += 1
                self.report(error)
                await self.sleep(delay(attempt, LONGEST_WAIT, self.chance()))
            else:
                attempt = 1
                await self.sleep(BETWEEN)

    async def _round(self) -> CopyRound:
        plan, _ = await look(self.clusters, self.selection)
        now = self.clock()
        account = await copy(self.clusters.target, [each for each in plan.actions if not self._is_refused(each, now)])
        bodies = {action.key: action.body for action in plan.actions}
        for key in account.left.keys() - account.failed:
            self._refused[key] = bodies[key], now + REFUSED_AGAIN
        for key in self._refused.keys() - bodies.keys():
            del self._refused[key]
        return CopyRound(plan, account)

    def _is_refused(self, action: MigrationAction, now: float) -> bool:
        body, until = self._refused.get(action.key, ({}, 0.0))
        return now < until and body == action.body
