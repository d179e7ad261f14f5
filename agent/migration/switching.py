"""A switchover to a standby: exact, since the source is there, and nobody is connected to it.

What the source still holds is moved behind the copies; then exactly the copies are taken from the head of each queue,
by acknowledgement, which dead-letters nothing. So at each moment all that isn't consumed is on one of both sides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from agent.amqp.connect import Connection, connect_any
from agent.amqp.data.rewriting import Destination
from agent.amqp.queue_messages import QueueHead
from agent.core.addresses.uri import AmqpUri
from agent.core.migration.difference import plan_migration
from agent.core.migration.objects import ClusterObjects, ObjectKey, ObjectKind, type_of
from agent.core.migration.selection import choose
from agent.core.rules.names import AGENT_PREFIX, PROMOTED, QUEUE_PREFIX, SWITCHED, SWITCHOVER
from agent.core.standby.copies import STREAM, inexact, limits_here, limits_of, unmovable
from agent.core.standby.settings import StandbySettings
from agent.core.standby.terms import FEWEST
from agent.core.text import counted, listed
from agent.definitions.sources.load import Configuration
from agent.errors import BrokerError, PermanentError, TransientError
from agent.links.ends import DOWNSTREAM, End, reachable
from agent.migration.reading import ClusterPair, clients_of, depths_of, read_cluster, read_operator_policies
from agent.migration.standby import promoted
from agent.migration.switch_record import SwitchedQueue, Switchover, SwitchRecord
from agent.migration.trimming import lock_copies
from agent.runtime.move_chooser import MoveOptions
from agent.runtime.moves import NAME, SETTLING, Move, count_ready
from agent.tasks import gather_both

FIGURES_LATE: Final = 10.0
"""Brokers' figures are up to so many seconds old."""
QUIET_FOR: Final = 15.0
"""Seconds in which no figure changes."""
DRAINED_WITHIN: Final = 600.0
BETWEEN: Final = 2.0
AT_A_TIME: Final = 8
TOGETHER: Final = 5_000
"""Messages of a queue that are taken at a time."""
LOCKED_WITHIN: Final = 90.0
"""Seconds in which other agents give copies back: they read that it is promoted within 30 s."""
_LOST: Final = (
    f"what was counted can't be read any more (global parameter {SWITCHED!r} of the standby), so copies can't be "
    "distinguished from what was moved: --failover ends it, and keeps all"
)
SAME_LOOKS: Final = 4
MOST_FRUITLESS: Final = 3
STAYING_LOOKS: Final = 6
_NOT_READY: Final = "delayed, with a consumer, or come meanwhile"
_CHANGES: Final = "figures of its queues still change"


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The `queues` that are moved; of all, those that keep their copies; and those that are left at the source, but for
    streams."""

    queues: Sequence[ObjectKey]
    inexact: Mapping[ObjectKey, str]
    unmovable: Mapping[ObjectKey, str]


class SwitchingOver:
    """`say` shows an operator what is waited for; `alone` are the connections that keep other commands out."""

    def __init__(
        self,
        configuration: Configuration,
        settings: StandbySettings,
        clusters: ClusterPair,
        say: Callable[[str], None],
        alone: Sequence[Connection] = (),
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configuration = configuration
        self._settings = settings
        self._clusters = clusters
        self._say = say
        self._sleep = sleep
        self._clock = clock
        self._record = SwitchRecord(clusters.target)
        self._alone = alone
        self._locks: list[Connection] = []

    async def connected(self) -> list[str]:
        """The clients of the vhosts on both sides, but for agents' own connections. Raises BrokerError."""
        there = {vhost: _users(self._source_end(vhost)) for vhost in self._settings.vhosts}
        here = {vhost: _users(self._end(vhost)) for vhost in self._settings.vhosts}
        found = await gather_both(
            clients_of(self._clusters.source, "source", there), clients_of(self._clusters.target, "standby", here)
        )
        return [each for clients in found for each in clients]

    async def wait_until_drained(self) -> None:
        """Until nothing changes at the source, and the queue of each link was seen empty since: later there are only
        probes in it. Copies may be taken out meanwhile. Raises BrokerError."""
        ends = self._clock() + DRAINED_WITHIN
        before: object = None
        since, emptied = 0.0, frozenset[ObjectKey]()
        own = f" -> {await self._cluster()}"
        while True:
            there = await self._depths()
            of_links = {key: there.pop(key) for key in tuple(there) if key.name.startswith(QUEUE_PREFIX)}
            of_links = {key: depth for key, depth in of_links.items() if key.name.endswith(own)}  # not other clusters'
            now = self._clock()
            if there != before:
                before, since, emptied = there, now, frozenset()
            if now - since >= FIGURES_LATE:
                emptied |= {key for key, depth in of_links.items() if depth == 0}
            left = {key: depth for key, depth in of_links.items() if key not in emptied}
            if not left and now - since >= QUIET_FOR:
                return
            waiting = sum(depth or 0 for depth in left.values())
            if now > ends:
                unknown = [str(key) for key, depth in left.items() if depth is None]
                why = f"{counted(waiting, 'message waits', 'messages wait')} in its links" if waiting else _CHANGES
                if unknown:
                    why = f"the source doesn't show how much waits in {listed(unknown)}"
                raise TransientError(f"upstream {self._settings.of}: not quiet within {DRAINED_WITHIN:g} s: {why}")
            self._say(f"waiting until nothing moves: {waiting:,} in links")
            await self._sleep(BETWEEN)

    async def _cluster(self) -> str:
        return (await self._clusters.target.overview())["cluster_name"]

    async def _depths(self) -> dict[ObjectKey, int | None]:
        return await depths_of(self._clusters.source, self._settings.vhosts)

    async def begin(self) -> None:
        """Before it is noted that the standby is promoted: nothing is known of an earlier switchover any more. Raises
        BrokerError, also where it is promoted meanwhile: what that one counted is needed."""
        if await self._clusters.target.global_parameter(PROMOTED) is not None:
            raise TransientError(f"{DOWNSTREAM}: it was promoted meanwhile: run it again")
        there, here = await gather_both(self._depths(), depths_of(self._clusters.target, self._settings.vhosts))
        keys = (key for key in there if not key.name.startswith((AGENT_PREFIX, QUEUE_PREFIX)))
        counts = [(key, here.get(key, 0), there[key]) for key in keys]
        await self._record.begin(
            SwitchedQueue(key, old or 0, more or 0, more or 0, more or 0, old or 0, TOGETHER)
            for key, old, more in counts
            if (old, more) != (0, 0)
        )

    async def look(self) -> Switchover:
        """The switchover by figures seconds old: `there` is moved, and `old` taken out. Raises BrokerError."""
        chosen = await self._chosen()
        there, here = await gather_both(self._depths(), depths_of(self._clusters.target, self._settings.vhosts))
        return Switchover(
            [
                SwitchedQueue(k, 0 if k in chosen.inexact else here.get(k) or 0, there.get(k) or 0)
                for k in chosen.queues
            ],
            chosen.inexact,
            {key: f"{_staying(there[key])}: {why}" for key, why in chosen.unmovable.items() if there.get(key, 0) != 0},
        )

    async def is_done(self) -> bool:
        """An earlier run has ended it, so clients may be here. Raises BrokerError."""
        await self._record.read()
        return self._record.is_done

    async def run(self) -> Switchover:
        """Each step is done for all queues and noted before the next begins, so it can be repeated. Raises
        BrokerError."""
        async with AsyncExitStack() as opened:
            self._locks = [*self._alone]
            for vhost in self._settings.vhosts:
                lock = await self._lock(vhost)
                opened.push_async_callback(lock.close)
                self._locks.append(lock)
            await self._record.read()
            if self._record.is_done:
                return Switchover()
            chosen = await self._chosen()
            if self._record.is_lost:
                return Switchover(inexact=chosen.inexact, problem=_LOST)
            return await self._run(chosen)

    async def _lock(self, vhost: str) -> Connection:
        """Lock a vhost's copies. What another agent still holds of them, to take it out, isn't counted: it ends that
        once it has read of the promotion."""
        ends = self._clock() + LOCKED_WITHIN
        while (connection := await lock_copies(self._own, vhost)) is None:
            if self._clock() > ends:
                raise TransientError(
                    f"{DOWNSTREAM}: another agent takes copies out of vhost {vhost!r} for more "
                    f"than {LOCKED_WITHIN:g} s: see that each agent beside the standby runs and reaches it, or is "
                    "stopped, and run it again"
                )
            self._say(f"waiting until no agent takes copies out of vhost {vhost!r}")
            await self._sleep(BETWEEN)
        return connection

    async def _run(self, chosen: _Chosen) -> Switchover:
        record, left = self._record, dict(chosen.inexact)
        if record.queues is None:
            queues = await self._each(
                [SwitchedQueue(key, 0, keeps=key in left) for key in chosen.queues], self._count_old
            )
            if (found := Switchover(queues, left)).problems:
                return found
            record.queues = queues
            await record.note()
        queues, noted = record.queues, {each.key for each in record.queues}
        queues += [SwitchedQueue(key, 0, keeps=key in left) for key in chosen.queues if key not in noted]
        found = Switchover(queues, left)
        if unmoved := [each for each in queues if each.kept is None]:
            await self._each(unmoved, self._move)
            await self._each(unmoved, self._count_kept)
            if not found.problems:
                found.stay = await self._staying([each.key for each in unmoved], chosen.unmovable)
            if found.problems:
                return found
            await record.note()
        await self._each(queues, self._drop)
        if not found.problems:
            for each in (each for each in queues if not each.keeps):
                if (more := await self._settled(each, looks=1) - each.there) > 0:
                    left[each.key] = f"{counted(more, 'message')} more than waited at the source"
            await record.note(is_done=True)
        return found

    async def _staying(self, moved: Sequence[ObjectKey], unmovable: Mapping[ObjectKey, str]) -> dict[ObjectKey, str]:
        """The queues of which the source still holds messages, ready or not: delayed, or with a consumer. Figures of
        before the move are waited out."""
        await self._sleep(FIGURES_LATE)
        staying: dict[ObjectKey, int | None] = {}
        for _ in range(STAYING_LOOKS):
            depths = await self._depths()
            staying = {key: depths.get(key, 0) for key in (*moved, *unmovable) if depths.get(key, 0) != 0}
            if not staying:
                break
            await self._sleep(BETWEEN)
        return {
            key: (
                f"{_staying(depth)} ({unmovable.get(key, _NOT_READY)}): consume or move what is there, and run it again"
            )
            for key, depth in staying.items()
        }

    async def _chosen(self) -> _Chosen:
        vhosts, there, here = self._settings.vhosts, self._clusters.source, self._clusters.target
        source = await read_cluster(there, vhosts, is_source=True)
        target = await read_cluster(here, vhosts, is_source=False)
        nothing = ClusterObjects("", source.release)
        wanted = plan_migration(source, nothing, choose(source, vhosts), with_traps=False).wanted
        limits = limits_of(source, wanted, time.process_time, await read_operator_policies(there, source))
        own = limits_of(target, wanted, time.process_time, await read_operator_policies(here, target))
        of_copies = limits_here(limits, own)
        stays = unmovable(wanted, limits, of_copies)
        streams = {key for key in stays if type_of(wanted[key]) == STREAM}
        return _Chosen(
            [key for key in wanted if key.kind is ObjectKind.QUEUE and key not in stays],
            stays | inexact(wanted, of_copies),
            {key: why for key, why in stays.items() if key not in streams},
        )

    async def _each(
        self, queues: list[SwitchedQueue], do: Callable[[SwitchedQueue], Awaitable[None]]
    ) -> list[SwitchedQueue]:
        waiting = list(reversed(queues))

        async def work() -> None:
            while waiting:
                queue = waiting.pop()
                try:
                    await do(queue)
                except BrokerError as error:
                    queue.problem = queue.problem or str(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_A_TIME, len(queues))):
                group.create_task(work())
        return queues

    async def _count_old(self, queue: SwitchedQueue) -> None:
        if not queue.keeps:
            queue.old, queue.there = await gather_both(self._settled(queue), self._settled(queue, is_source=True))

    async def _move(self, queue: SwitchedQueue) -> None:
        options = MoveOptions(queue.key.name, Destination("", queue.key.name), until_empty=True)
        move = Move(self._source_end(queue.key.vhost), self._end(queue.key.vhost), options)
        await self._demand_ours()
        if queue.keeps and not await self._settled(queue, looks=1, is_source=True):
            return
        try:
            await move.run()
        finally:
            if move.account.moved:
                queue.moved += move.account.moved
                await self._record.note()
        account = move.account
        if account.error is not None or account.left or account.notes:
            why = [*account.notes, *(f"{reason} {number:,}" for reason, number in account.left.items())]
            queue.problem = "; ".join([*why, *([] if account.error is None else [str(account.error)])])

    async def _count_kept(self, queue: SwitchedQueue) -> None:
        if queue.keeps:
            queue.kept = queue.moved
            return
        queue.kept, queue.left = await self._settled(queue) - queue.old, queue.old
        if queue.kept < queue.moved:
            queue.problem = queue.problem or f"{queue.moved - queue.kept:,} of its copies went by themselves meanwhile"

    async def _drop(self, queue: SwitchedQueue) -> None:
        """Take so many from the head as there were copies, whatever comes meanwhile, and none where fewer are there."""
        if queue.taking:  # it was interrupted before it was known whether they went
            went = await self._settled(queue) != (queue.kept or 0) + queue.left + queue.taking
            queue.left, queue.taking = queue.left if went else queue.left + queue.taking, 0
        fruitless = 0
        async with await self._connected(queue) as connection:
            while queue.left and not queue.problem:
                head = QueueHead(connection, queue.key.name)
                await head.hold(max(min(queue.left, TOGETHER), FEWEST))
                fruitless = 0 if head.held else fruitless + 1
                if head.has_priorities:
                    queue.problem = "its messages have priorities, so its first ones aren't the oldest: it keeps copies"
                elif fruitless == MOST_FRUITLESS:
                    queue.problem = f"{queue.left:,} of its copies can't be taken: does it have a consumer?"
                else:
                    await self._take(queue, head)
                await head.close()
                queue.taking = 0

    async def _take(self, queue: SwitchedQueue, head: QueueHead) -> None:
        """Those that are held can't expire, so what went before them shows in what is there with them."""
        wanted = (queue.kept or 0) + queue.left - head.held
        if await self._settled(queue, looks=1) < wanted and (missing := wanted - await self._settled(queue)) > 0:
            queue.problem = f"{missing:,} of its messages went by themselves, or are with a consumer: it keeps copies"
            return
        if not head.held:
            return
        queue.taking = min(queue.left, head.held)
        queue.left -= queue.taking
        await self._record.note()
        await self._demand_ours()
        head.acknowledge(queue.taking)
        await self._sleep(SETTLING)
        if head.is_lost:  # whether they went shows in what is there the next time
            raise TransientError(
                f"{DOWNSTREAM}: the connection was lost while copies of {queue.key} went: run it again"
            )

    async def _demand_ours(self) -> None:
        """Directly before what can't be taken back: clients may have come since the switchover was ended. Raises
        BrokerError."""
        if any(lock.is_closed for lock in self._locks):
            raise TransientError(f"{DOWNSTREAM}: the connection that keeps others out was lost: run it again")
        _, how = promoted(await self._clusters.target.global_parameter(PROMOTED))
        if how != SWITCHOVER:
            raise PermanentError(f"{DOWNSTREAM}: the switchover was ended meanwhile, by a {how or 'lost note'}")

    async def _settled(self, queue: SwitchedQueue, *, looks: int = SAME_LOOKS, is_source: bool = False) -> int:
        """The number of ready messages, the same so many times: it takes a moment until a quorum queue counts all."""
        before, same = -1, 0
        async with await self._connected(queue, is_source=is_source) as connection:
            while True:
                found = await count_ready(connection, queue.key.name)
                before, same = found, same + 1 if found == before else 1
                if same >= looks:
                    return found
                await self._sleep(SETTLING)

    async def _connected(self, queue: SwitchedQueue, *, is_source: bool = False) -> Connection:
        end = self._source_end(queue.key.vhost) if is_source else self._end(queue.key.vhost)
        return await connect_any(end.uris, where=end.where, name=NAME, default_vhost=end.default_vhost)

    def _end(self, vhost: str) -> End:
        return End(DOWNSTREAM, tuple(uri.in_vhost(vhost) for uri in self._own), vhost)

    def _source_end(self, vhost: str) -> End:
        upstream = self._settings.upstream(vhost, self._configuration.definitions)
        uris = () if upstream is None else upstream.uris
        return End(f"upstream {self._settings.of}", reachable(uris, vhost, self._own), vhost)

    @property
    def _own(self) -> tuple[AmqpUri, ...]:
        return self._configuration.settings.downstream.uris


def _staying(depth: int | None) -> str:
    return f"{'an unknown number' if depth is None else counted(depth, 'message')} of it still at the source"


def _users(end: End) -> set[str]:
    return {uri.login[0] for uri in end.uris}
