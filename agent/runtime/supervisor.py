"""Keeps the links that should exist running, and ends those that should not; only what changed is touched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from agent.core.addresses.uri import AmqpUri
from agent.core.links.lifecycle import Pause
from agent.core.links.plan import plugin_of
from agent.core.links.reconcile import (
    DownstreamSeen,
    EndLink,
    RunLink,
    differ_in_passwords,
    has_other_passwords,
    needs_restart,
    reconcile,
)
from agent.core.links.served_by import Other
from agent.core.model import Link
from agent.core.rules.resolve import resolving
from agent.core.status.acknowledgements import Acknowledgement
from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration
from agent.downstream.bindings import BindingFollower, Federated, KnownBindings, exchanges_of, read_bindings
from agent.downstream.consumers import ConsumerFollower, Consumers
from agent.downstream.listen import Listener
from agent.downstream.read import declare_missing, read_downstream
from agent.downstream.reading import Bindings, DefinitionSource, Reading
from agent.downstream.watch import ReloadCause
from agent.errors import AgentError, ConfigurationError, Side
from agent.links.brokers import Brokers, renewed_ends
from agent.links.registry import Kinds, sweep
from agent.management.answers import ConsumerAnswer
from agent.management.client import ManagementClient
from agent.runtime.problems import Problems, texts
from agent.runtime.quarantine_depth import TASK as LOOKING_INTO_QUARANTINES
from agent.runtime.quarantine_depth import QuarantineDepths
from agent.runtime.runners import Runners
from agent.runtime.shovel_parameters import delete_finished, delete_parameter, is_parameter
from agent.runtime.ticker import TASK as TICKER
from agent.runtime.ticker import tick_links
from agent.runtime.upstream_counters import TASK as LOOKING_UPSTREAM
from agent.runtime.upstream_counters import UpstreamCounters
from agent.slices import in_slices, steps_in_slices
from agent.status.board import Board, address_of
from agent.tasks import GuardedTasks

END_PATIENCE: Final = 2.0  # for tasks that only have to notice their end
LOOK_FOR_PLUGIN: Final = 3.0
QUORUM_NODES: Final = 3
READS_FILE: Final = {ReloadCause.START, ReloadCause.FILE, ReloadCause.HANGUP}
"""At the start, too: the file was read before anybody watched it."""

log = structlog.get_logger()


class Supervisor:
    """Keeps the links as the definitions want them, one step at a time: read, resolve, compare with what runs, act."""

    def __init__(self, load: Callable[[], Configuration], board: Board) -> None:
        self._load = load
        self.configuration = self._loaded = load()  # first: nothing begins where it isn't valid
        self._board = board
        self._kinds: Kinds | None = None
        self._reading: Reading | None = None
        self._tasks = GuardedTasks(board.errors)
        self._settles_soon = False
        self._downstream_is_renewed = False  # it has other passwords than at the last reconcile
        self._reconciling = asyncio.Lock()
        self._bindings = KnownBindings()
        self._consumers = Consumers()
        self._runners = Runners(board, self._bindings, lambda: self.configuration.settings.downstream.uris)
        self._runners.on_completed = lambda link: self._remember_completed((link,))
        self._runners.on_settled = self._plan_settling
        self.has_unread: Callable[[Link], bool] = lambda _: False
        self._resolved: tuple[Link, ...] = ()
        self._keeper = Keeper()
        self._problems = Problems(board, self._keeper)
        self.listener = Listener(lambda: self.configuration.settings.downstream.uris, board.errors)
        self._is_following = self._is_following_api = False

    def shown_certificates(self, link: Link) -> Iterable[tuple[Side, bytes]]:
        if self._kinds is None:
            return ()
        return self._kinds.brokers.shown_certificates(self._kinds.of(link).ends(link), link.id)

    async def reload(self, causes: frozenset[ReloadCause]) -> None:
        """Read the definitions again, for the watcher; an error leaves everything as it is."""
        try:
            if causes & READS_FILE:
                await self._read_configuration()
            async with self._reconciling:
                await self._reconcile_all()
        except Exception as error:  # noqa: BLE001 - whatever it is keeps definitions from taking effect: it has to be seen
            self._problems.fail(error)
        self._problems.succeed()
        if not self._board.problems:
            self._board.reloaded_at = self._board.clock()

    async def _read_configuration(self) -> None:
        """Read the configuration in a thread, as exports may be large."""
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigurationError as error:
            self._keeper.refuse(DefinitionSource.CONFIGURATION, error)
        else:
            self._loaded = loaded
            self._keeper.take(DefinitionSource.CONFIGURATION, lambda: loaded.reading)

    def _adopt(self) -> bool:
        """Put a configuration in force as a whole: not its settings where its definitions are refused. True if it is
        another one than before."""
        if self._loaded is self.configuration or self._keeper.refuses(DefinitionSource.CONFIGURATION):
            return False
        self.configuration = self._loaded
        log.info("configuration read")
        return True

    async def _reconcile_all(self) -> None:
        """Reconcile all links, and delete finished shovels after that, since they may have been defined anew."""
        self._adopt()
        await self._reconcile()
        if self._adopt():  # another source has made room for it
            await self._reconcile()
        self._remember_completed(runner.link for runner in self._runners if runner.state.completed)
        finished = [runner.link for runner in self._runners if runner.has_completed]
        deleted = await delete_finished(finished, self._keeper, self.configuration.settings.downstream.management)
        self._problems.left_out = (*self._problems.left_out, *deleted.problems)
        if deleted.has_deleted:
            await self._reconcile()

    def _plan_settling(self) -> None:
        """Plan one reading for all links that have ended before it: a thousand shovels may end together."""
        if not self._settles_soon:
            self._settles_soon = True
            self._tasks.once("settle what has finished", self._settle_completed())

    def _remember_completed(self, completed: Iterable[Link]) -> None:
        """Store at once that links have completed, while their connections still end: this agent may be gone in a
        moment. Shovels of parameters aren't stored: they are deleted, and may be set again."""
        self._runners.commands.remember_finished(link for link in completed if not is_parameter(link, self._keeper))

    async def _settle_completed(self) -> None:
        """Reconcile after links have ended. What fails here is done again with the next reading, and is shown then."""
        with suppress(AgentError):
            async with self._reconciling:
                self._settles_soon = False  # what ends from now on may be missed by this reading
                await self._reconcile_all()
            self._problems.show()

    async def _reconcile(self) -> None:
        reading = await read_downstream(self.configuration, self._keeper)
        kinds = self._kinds_for(reading)
        notes = await declare_missing(self.configuration.settings.downstream.uris, reading)
        found = await steps_in_slices(
            resolving(reading.definitions, reading.states, previous=self._resolved, clock=time.thread_time)
        )
        self._resolved = found.links
        self._problems.left_out = texts((*reading.problems, *found.unjudged))
        self._problems.note(notes, (*reading.warnings, *found.problems))
        wanted = {
            link.id: reading.judged(link, has_known_bindings=self._bindings.of((link.vhost, link.name)) is not None)
            for link in found.links
        }
        self._reading = reading
        prefers_quorum = await self._prefers_quorum()
        with self._bindings.reading(exchanges_of(wanted.values())) as number:
            bindings = await self._read_bindings(wanted.values())
            self._renew_passwords(wanted, kinds)
            seen = DownstreamSeen(reading.states, reading.native_links, reading.sees, reading.has_failed_over)
            async for change in in_slices(reconcile(wanted, self._runners.by_id, seen)):
                self._execute(change, kinds)
            self._runners.share_with_others(prefers_quorum=prefers_quorum)
            self._learn(number, bindings)
        self._bindings.keep(exchanges_of(each.link for each in self._runners))
        self._runners.start_ready()
        self._begin_following(kinds)
        self._board.vhosts = reading.visible
        self._board.ready = True

    def _execute(self, change: RunLink | EndLink, kinds: Kinds) -> None:
        match change:
            case RunLink(link, restarts, is_native):
                runner = self._runners.get_or_make(link, kinds)
                if restarts:
                    runner.redefine(link)
                runner.link = link
                if not restarts:
                    runner.follow_limit()
                runner.want()
                self._board.put(link, runner.state, runner.counts, runner.gauges)
                native = f"{plugin_of(link)} of the downstream runs this link" if is_native else None
                runner.served_by(Other.PLUGIN, native)
            case EndLink(link_id, removes, object_is_deleted):
                if object_is_deleted:
                    self._board.object_deleted(link_id)
                ended = self._runners.by_id.get(link_id)
                if ended is not None and removes:
                    ended.unwant()
                elif ended is not None:
                    self._runners.let_go(ended)

    async def _prefers_quorum(self) -> bool:
        """True if leases should outlive a node of the downstream; asked before they are first needed."""
        management = self.configuration.settings.downstream.management
        if self._runners.is_leasing or not management:
            return False
        try:
            async with ManagementClient(management) as client:
                return sum(node.get("running") is True for node in await client.nodes()) >= QUORUM_NODES
        except AgentError:
            return False  # classic queues do as well, but for while their node is down

    def _renew_passwords(self, wanted: Mapping[str, Link], kinds: Kinds) -> None:
        """Use new passwords. Links that run go on with the connections they have, and those that begin share them."""
        found = [(each, wanted.get(each.link.id, each.link)) for each in self._runners]
        if not self._downstream_is_renewed:
            found = [(runner, link) for runner, link in found if has_other_passwords(runner.link, link)]
        if not found:
            return
        successors = {runner.link.id: kinds.of(link).ends(link) for runner, link in found}
        changes = ((runner.ends, successors.get(runner.link.id, runner.ends)) for runner in self._runners)
        kinds.brokers.renew(renewed_ends(changes), self._tasks)
        for runner, link in found:
            if not needs_restart(runner.link, link):
                runner.renew(link, successors[runner.link.id])
        self._downstream_is_renewed = False

    def _kinds_for(self, reading: Reading) -> Kinds:
        uris = self.configuration.settings.downstream.uris
        if self._kinds is None:
            stall_after = self.configuration.settings.agent.stall_after
            brokers = Brokers(
                uris, reading.cluster, stall_after,
                errors=self._board.errors, consumers=self._consumers, permit=self._runners.permit,
            )  # fmt: skip
            brokers.holds_removals = self._is_unsure
            self._kinds = Kinds(brokers)
        brokers = self._kinds.brokers
        if brokers.cluster == reading.cluster and differ_in_passwords(brokers.downstream, uris):
            self.listener.renew(brokers.downstream, uris, self._tasks)
            self._runners.renew(brokers.downstream, uris)
            brokers.downstream, self._downstream_is_renewed = uris, True
        elif (brokers.downstream, brokers.cluster) != (uris, reading.cluster):
            self._move(brokers, uris, reading)
        agent = self.configuration.settings.agent
        brokers.stall_after, brokers.cleanup_after = agent.stall_after, agent.cleanup_after
        self._board.cluster, self._board.group = reading.cluster, agent.group or reading.cluster
        self._board.clusters.downstream = frozenset(map(address_of, uris))
        return self._kinds

    def _move(self, brokers: Brokers, uris: tuple[AmqpUri, ...], reading: Reading) -> None:
        """Move to the downstream's other addresses or name: links start again, under names that follow from it."""
        former, before = brokers.cluster, self._reading
        if brokers.downstream != uris:
            self._tasks.once("listen elsewhere", self.listener.leave())
            self._runners.move()
        brokers.downstream, brokers.cluster = uris, reading.cluster
        for runner in self._runners:
            runner.redefine(runner.link)
        if former == reading.cluster:
            return
        log.warning("the downstream's cluster name is another", cluster=reading.cluster, former=former)
        if before is not None and reading.identity is not None and reading.identity == before.identity:
            self._tasks.once("remove what has a former name", sweep(tuple(self._runners), brokers, former))
            return
        for runner in self._runners:  # the first cluster may want what they have built for it
            if runner.state.unwanted is not None:
                self._runners.let_go(runner)

    def _is_unsure(self, link: Link) -> bool:
        """True if a link that seems unwanted may be defined by something that couldn't be read, or wasn't read yet."""
        is_reading = self._reconciling.locked()
        return self.has_unread(link) or is_reading or self._problems.has_failed or bool(self._keeper.refusals)

    async def _read_bindings(self, links: Iterable[Link]) -> Bindings:
        if self._reading is None:
            return {}
        read = await read_bindings(self.configuration, self._reading, tuple(links))
        self._problems.left_out = tuple(dict.fromkeys((*self._problems.left_out, *texts(read.problems))))
        return read.bindings

    def _learn(self, number: int, found: Bindings) -> None:
        self._runners.rebind(self._bindings.learn(number, found))

    def act(self, link_id: str, action: str) -> None:
        """Carry out an operator's request for a link."""
        self._runners.commands.act(link_id, action)

    def pause(self, link_id: str, pause: Pause) -> None:
        """Pause a link. It stays paused until somebody resumes it, whatever becomes of this process."""
        self._runners.commands.act(link_id, "pause", pause)

    def acknowledge(self, links: Mapping[str, Acknowledgement | None]) -> None:
        """Acknowledge the trouble of links, which is stored as a pause is, until the trouble is over."""
        self._runners.commands.acknowledge(links)

    async def delete_shovel(self, vhost: str, name: str) -> str | None:
        """Delete a shovel's parameter; returns the reason why it can't be deleted, None if it is gone. The link ends as
        soon as that is read."""
        management = self.configuration.settings.downstream.management
        refusal = await delete_parameter(vhost, name, self._keeper, management)
        if refusal is None:
            self._tasks.once("follow the deletion of a shovel", self._settle_completed())
        return refusal

    def report(self, error: Exception) -> None:
        """Report an error of the watcher."""
        self._problems.report(error)

    def _begin_following(self, kinds: Kinds) -> None:
        """Start the tasks that run beside the readings, after the first one; some of them need the HTTP API."""
        if not self._is_following:
            self._is_following = True
            self._tasks.keep(TICKER, lambda: tick_links(self._runners.by_id.items, self._board))
            depths = QuarantineDepths(lambda: self._runners, kinds.brokers.asking, self._board)
            self._tasks.keep(LOOKING_INTO_QUARANTINES, depths.run)
            # Only the export needs it, and whether there is one is decided at the start.
            if (export := self.configuration.settings.agent.status_export) is not None:
                counters = UpstreamCounters(lambda: self._runners, self._board, every=export.sample_interval)
                self._tasks.keep(LOOKING_UPSTREAM, counters.run)
        if not self._is_following_api and self.configuration.settings.downstream.management:
            self._is_following_api = True
            self._follow_by_api()

    def _follow_by_api(self) -> None:
        bindings = BindingFollower(
            listener=self.listener,
            sources=lambda: (self._runners.followed, *self._bindings.asked),  # of links, and of links to come
            change=lambda changes: self._runners.rebind(self._bindings.change(changes)),
            read=self._read_bindings_of,
        )
        consumers = ConsumerFollower(self._consumers, listener=self.listener, read=self._read_consumers)
        self._tasks.keep("follow bindings", bindings.run)
        self._tasks.keep("follow consumers", consumers.run)
        self._tasks.keep("look for the federation plugin", self._look_for_plugin)

    async def _read_consumers(self, vhost: str) -> list[ConsumerAnswer]:
        async with ManagementClient(self.configuration.settings.downstream.management) as client:
            return await client.consumers(vhost)

    async def _look_for_plugin(self) -> None:
        """Check at intervals whether the plugin is disabled: no event reports that, and the links that waited for that
        shouldn't wait long."""
        while True:
            await asyncio.sleep(LOOK_FOR_PLUGIN)
            if any(runner.waits_for(Other.PLUGIN) for runner in self._runners):
                with suppress(AgentError):  # the watcher meets the same error, and reports it
                    async with self._reconciling:
                        await self._reconcile()

    async def _read_bindings_of(self, sources: frozenset[Federated]) -> None:
        if not sources <= self._runners.followed:
            async with self._reconciling:  # their links come with the reading that is under way
                pass
        wanted = (each.link for each in self._runners if not each.is_unwanted)
        links = [link for link in wanted if (link.vhost, link.name) in sources]
        with self._bindings.reading(exchanges_of(links)) as number:
            self._learn(number, await self._read_bindings(links))

    async def stop(self) -> None:
        """Settles what is in flight; everything upstream stays."""
        self._runners.hold()
        await self._tasks.end(END_PATIENCE)
        await self._runners.stop()
