"""Keeps a standby in step with its source: its definitions, and what is known of the queues on both sides.

Its links are ordinary ones, see `StandbySettings.links`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from agent.core.addresses.uri import AmqpUri
from agent.core.migration.difference import MigrationPlan, plan_migration
from agent.core.migration.objects import ClusterObjects, ObjectKey, ObjectKind, Objects
from agent.core.migration.releases import ObjectionKind
from agent.core.migration.selection import choose
from agent.core.rules.names import HELD_BACK, HOW, PROMOTED, SINCE
from agent.core.standby.copies import (
    StandbyCopies,
    StandbyGone,
    bindings_as_json,
    bindings_from_json,
    copies_of,
    gone,
    limits_here,
    limits_of,
    still_held_back,
    without,
    without_federation,
)
from agent.core.standby.settings import StandbySettings
from agent.core.standby.status import StandbyStatus
from agent.core.standby.terms import TrimTerms, trim_terms
from agent.definitions.sources.load import Configuration
from agent.errors import AgentError, BrokerError, ConfigurationError, PermanentError
from agent.management.changing import DeclaringClient
from agent.management.client import ManagementClient
from agent.migration.copying import CopyRound, Follower
from agent.migration.figures import ClusterFigures
from agent.migration.reading import ClusterPair, read_cluster, read_operator_policies
from agent.migration.trimming import Trimming, rule_of
from agent.status.board import Board
from agent.tasks import gather_both, run_until_first

BETWEEN: Final = 10.0
LOOK_AT_CONFIGURATION: Final = 1.0
NOTHING_TO_DO: Final = MigrationPlan((), (), {}, {}, {})
CLUSTER_ID: Final = "internal_cluster_id"
TWICE: Final = "its messages come by the link of the second exchange, too: remove it, a promotion makes it again"

log = structlog.get_logger()


async def keep_in_step(
    configuration: Callable[[], Configuration], board: Board, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Until cancelled, whatever the configuration says of a standby."""
    while True:
        now = configuration()
        board.standby = None
        works = [_until_another(configuration, now, sleep)]
        if (settings := now.settings.standby) is not None:
            board.standby = StandbyStatus(settings)
            works.append(_keep(now, settings, board, sleep))
        await run_until_first(*works)


async def _until_another(
    configuration: Callable[[], Configuration], now: Configuration, sleep: Callable[[float], Awaitable[None]]
) -> None:
    while configuration() is now:
        await sleep(LOOK_AT_CONFIGURATION)


async def _keep(
    configuration: Configuration, settings: StandbySettings, board: Board, sleep: Callable[[float], Awaitable[None]]
) -> None:
    async with open_standby(configuration, settings) as clusters:
        standby = _Standby(clusters, settings, board, configuration.settings.downstream.uris)
        follower = Follower(
            clusters, settings.vhosts, standby.report, sleep, chance=random.random, planned=standby.planned
        )
        await run_until_first(follower.run(), standby.look_at_queues(sleep))


@asynccontextmanager
async def open_standby(configuration: Configuration, settings: StandbySettings) -> AsyncIterator[ClusterPair]:
    """The HTTP APIs of the source and of the standby."""
    where, urls = f"upstream {settings.of}", settings.management(configuration.definitions)
    async with (
        ManagementClient(urls, where=where, setting=f"management of {where}") as source,
        DeclaringClient(configuration.settings.downstream.management) as standby,
    ):
        yield ClusterPair(source, standby)


@dataclass(frozen=True, slots=True)
class _Found:
    """The definitions of both sides and the policies of their operators, and all that follows from them."""

    of: tuple[ClusterObjects, ClusterObjects, Objects, Objects]
    plan: MigrationPlan
    copies: StandbyCopies
    terms: TrimTerms
    gone: StandbyGone


def _found(
    settings: StandbySettings, source: ClusterObjects, target: ClusterObjects, there: Objects, here: Objects
) -> _Found:
    """Raises PermanentError for what can't be chosen."""
    of, clock = (source, target, there, here), time.thread_time
    try:
        chosen = choose(source, settings.vhosts)
    except ConfigurationError as error:
        raise PermanentError("; ".join(str(problem.message) for problem in error.problems)) from error
    source = without_federation(source)
    plan = plan_migration(source, target, chosen, clock, with_traps=False)
    of_all = limits_of(source, source.objects, clock, there)
    limits = {key: each for key, each in of_all.items() if key in plan.wanted}
    own = limits_here(limits, limits_of(target, plan.wanted, clock, here))
    return _Found(
        of,
        plan,
        copies_of(settings, source, plan.wanted, limits, own),
        trim_terms(settings, source, target.release, plan.wanted, of_all, copies=own),
        gone(settings, source, target),
    )


class _Standby:
    def __init__(
        self, clusters: ClusterPair, settings: StandbySettings, board: Board, uris: tuple[AmqpUri, ...]
    ) -> None:
        self._clusters = clusters
        self._there, self._here = ClusterFigures(clusters.source), ClusterFigures(clusters.target)
        self._trimming = Trimming(uris, settings, asyncio.get_running_loop().time, rule_of(settings))
        self._taking = asyncio.Lock()
        self._is_over = False
        self._settings = settings
        self._board = board
        self._status = StandbyStatus(settings)
        board.standby = self._status
        self._queues: frozenset[ObjectKey] = frozenset()
        self._unlike: Mapping[ObjectKey, str] = {}
        self._found: _Found | None = None

    async def planned(self) -> MigrationPlan:
        """The plan of an ordinary copy, but without the bindings that wait. Nothing to do after a promotion."""
        since, _ = promoted(await self._clusters.target.global_parameter(PROMOTED))
        if since is not None:
            await self._note_promotion(since)
            return NOTHING_TO_DO
        self._status.promoted_at, self._is_over = None, False
        source, target = await gather_both(
            read_cluster(self._clusters.source, self._settings.vhosts, is_source=True),
            read_cluster(self._clusters.target, self._settings.vhosts, is_source=False),
        )
        await self._refuse_itself(source, target)
        operators = await gather_both(
            read_operator_policies(self._clusters.source, source),
            read_operator_policies(self._clusters.target, target),
        )
        of = source, target, *operators
        if self._found is None or self._found.of != of:  # in a thread: with many queues it takes seconds
            self._found = await asyncio.to_thread(_found, self._settings, *of)
        found = self._found
        wanted, held_back = found.plan.wanted, found.copies.held_back
        self._queues = frozenset(key for key in wanted if key.kind is ObjectKind.QUEUE)
        self._status.doubts, self._status.gone = found.copies.doubts, found.gone
        self._status.held_back = await self._remember(found.copies, wanted, target.objects)
        self._unlike = dict.fromkeys((key for key in held_back if key in target.objects), TWICE)
        differing = (each for each in found.plan.objections if each.verdict is ObjectionKind.DIFFERS)
        self._unlike |= {each.key: each.reason for each in differing}
        return without(found.plan, held_back)

    def report(self, found: CopyRound | AgentError) -> None:
        status = self._status
        if isinstance(found, AgentError):
            if status.follow_error != str(found):
                log.warning("the standby can't follow its source", upstream=self._settings.of, error=str(found))
            status.follow_error = str(found)
            return
        if status.follow_error:
            log.info("the standby follows its source again", upstream=self._settings.of)
        if found.account.done:
            log.info("copied to the standby", **{str(kind): number for kind, number in found.account.done.items()})
        status.follow_error, status.followed_at = "", self._board.clock()
        status.left = {**self._unlike, **found.account.left}

    async def _note_promotion(self, since: str) -> None:
        """Shown only once nothing is held any more: a switchover counts what is ready."""
        if self._status.promoted_at is None:
            log.warning("the standby is promoted: it doesn't follow its source any more", since=since)
        self._is_over = True
        async with self._taking:
            await self._trimming.close()
        self._status.promoted_at = since

    async def _refuse_itself(self, source: ClusterObjects, target: ClusterObjects) -> None:
        there, here = await gather_both(
            self._clusters.source.global_parameter(CLUSTER_ID), self._clusters.target.global_parameter(CLUSTER_ID)
        )
        if there is not None and there == here and source.cluster == target.cluster:
            raise PermanentError(
                f"upstream {self._settings.of} and downstream are the same cluster, {source.cluster!r}: look at their "
                "addresses, as a standby's source is another one"
            )

    async def _remember(self, copies: StandbyCopies, wanted: Objects, here: Objects) -> tuple[ObjectKey, ...]:
        """On the broker, for a promotion on any host once the source is gone."""
        noted = await self._clusters.target.global_parameter(HELD_BACK)
        remembered = still_held_back(bindings_from_json(noted), copies.held_back, wanted, here)
        held = bindings_as_json(remembered, remembered)
        if noted != {"bindings": held}:
            await self._clusters.target.set_global_parameter(HELD_BACK, {"bindings": held})
        return tuple(remembered)

    async def look_at_queues(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        try:
            while True:
                try:
                    await self._look_at_queues()
                except BrokerError as error:
                    self._status.depths_error = str(error)
                    async with self._taking:  # whoever consumes here meanwhile gets the oldest first
                        await self._trimming.give_back()
                await sleep(BETWEEN)
        finally:
            await self._trimming.close()

    async def _look_at_queues(self) -> None:
        if self._found is None:  # it isn't known yet which queues are followed
            return
        vhosts = sorted({key.vhost for key in self._queues})
        there, here = await gather_both(self._there.look(vhosts), self._here.look(vhosts))
        at = asyncio.get_running_loop().time()
        found = {
            key: (there.get((key.vhost, key.name)), here.get((key.vhost, key.name)))
            for key in sorted(self._queues, key=str)
        }
        status = self._status
        depths = {
            key: (None if source is None else source.messages, None if copy is None else copy.messages)
            for key, (source, copy) in found.items()
        }
        status.note_depths(depths, self._board.clock())
        async with self._taking:
            if status.promoted_at is not None or self._is_over:
                return
            if why_old := self._there.why_old or self._here.why_old:
                doubt = f"nothing is taken out of it, as its figures may be too old: {why_old}"
                status.trim_doubts = dict.fromkeys(found, doubt)
                await self._trimming.give_back()
            else:
                status.trim_doubts = await self._trimming.look(found, self._found.terms, at, lambda: self._is_over)


def promoted(noted: object) -> tuple[str | None, str | None]:
    """Since when, and how, from what a promotion has noted; None if there was none."""
    if noted is None:
        return None, None
    found = noted if isinstance(noted, dict) else {}
    return str(found.get(SINCE, "")), str(found.get(HOW, ""))
