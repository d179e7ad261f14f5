"""The end of a link that is gone for good: first a wait, while what it built upstream stays, then its removal. And the
removal of what links kept under a name that their downstream no longer has.

Why: docs/decisions/0030-removal-waits.md, docs/decisions/0037-cluster-renamed.md
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

import structlog

from agent.amqp.connect import Connection
from agent.amqp.connection_pool import Shared
from agent.amqp.rpc import count_consumers, count_messages
from agent.amqp.wire.ends import ConnectionClosedError
from agent.core.links import waits
from agent.core.links.lifecycle import LinkState, Status
from agent.core.links.upstream_steps import upstream_queue_name
from agent.core.links.waits import announce
from agent.core.model import ExchangeLink, Link, QueueType
from agent.core.rules import names
from agent.errors import BrokerError, PermanentError, TransientError
from agent.links.brokers import Brokers
from agent.links.ends import End
from agent.links.exchange import upstream_objects
from agent.links.exchange.upstream_objects import Canary, UpstreamState
from agent.links.kind import InDoubtError, KeptError

LOOK_EVERY: Final = 5.0
LOOK_PATIENCE: Final = 10.0
HELD: Final = 1.0  # after that it is looked whether the removal may happen now
PATIENCE: Final = 30.0
NOT_IMPLEMENTED: Final = 540
READINGS: Final = 20  # whether definitions that are read just now are read
BETWEEN_READINGS: Final = 0.1
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0  # seconds between looks at a link that may run elsewhere for years
UNUSED_WITHIN: Final = 30.0  # seconds in which a broker has noticed that a connection of this agent is lost

log = structlog.get_logger()


class ExchangeCleanup:
    """See `agent.links.kind.Cleanup`."""

    def __init__(self, link: ExchangeLink, brokers: Brokers, built: Callable[[], UpstreamState]) -> None:
        self._link = link
        self._brokers = brokers
        self._built = built

    def removing(self, *, cluster: str, since: float) -> RemovalWait:
        return RemovalWait(self._link, self._brokers, cluster=cluster, since=since)

    async def remove(self, *, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:
        stands_otherwise = bool(self._built().note)
        removal = Removal(
            self._link, self._brokers, cluster=cluster, messages=messages, stands_otherwise=stands_otherwise
        )
        return await removal.run(still)


class RemovalWait:
    """The wait before the removal. `cluster` is the downstream's name under which the queue was built, `since` when the
    link became unwanted.

    `messages` is the number that wait in its queue; None if that can't be known now.
    """

    def __init__(self, link: ExchangeLink, brokers: Brokers, *, cluster: str, since: float) -> None:
        self.messages: int | None = None
        self.looks = 0
        self._link = link
        self._brokers = brokers
        self._cluster = cluster
        self._since = since
        self._control: Shared | None = None
        self._loop = asyncio.get_running_loop()

    def _left(self, messages: int | None) -> float:
        """The seconds until the removal is due; a change of the configuration applies to links that wait already."""
        return self._brokers.cleanup_after.due_at(self._since, messages) - self._loop.time()

    @property
    def text(self) -> str:
        """The text for operators; empty before the first look is over."""
        if not self.looks:
            return ""
        return announce(self._left(self.messages), self.messages, held=self._brokers.holds_removals(self._link))

    async def run(self) -> bool:
        """Wait until the removal is due; return True if it may remove messages, too."""
        try:
            while True:
                if not self._brokers.cleanup_after.is_at_once:
                    await self._look()
                left = self._left(self.messages)
                if left > 0:
                    await asyncio.sleep(min(left, LOOK_EVERY))
                elif self._brokers.holds_removals(self._link):
                    await asyncio.sleep(HELD)
                else:
                    return self.messages != 0 or self._left(None) <= 0  # even one with messages has waited enough
        finally:
            await self._leave()

    async def _look(self) -> None:
        found = None
        # The link has to end, whatever is wrong with looking at its queue.
        guard = self._brokers.errors.catching("look at the queue of an unwanted link", link=self._link.id)
        with guard, suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(LOOK_PATIENCE):
                found = await self._count()
        self.messages = found
        if found is None:
            await self._leave()
        self.looks += 1

    async def _count(self) -> int:
        if self._control is None:
            self._control = await self._brokers.control(self._brokers.federation_ends(self._link).source)
        queue = upstream_queue_name(self._link, self._control.connection.vhost, self._cluster)
        if names.are_too_long(queue):  # nothing was ever built
            return 0
        return await count_messages(self._control, queue)

    async def _leave(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.release()


class Removal:
    """The removal of what one link has built under the downstream's name `cluster`. Without `messages`, the queue is
    deleted only if it is empty.

    `stands_otherwise`: the queue has other arguments than are defined, and so may be of another type.
    """

    def __init__(
        self, link: ExchangeLink, brokers: Brokers, *, cluster: str, messages: bool, stands_otherwise: bool
    ) -> None:
        self._link = link
        self._brokers = brokers
        self._cluster = cluster
        self._messages = messages
        self._is_quorum = link.settings.queue_type is QueueType.QUORUM
        self._may_cost_connection = self._is_quorum or stands_otherwise

    @property
    def _upstream(self) -> End:
        return self._brokers.federation_ends(self._link).source

    async def run(self, still: Callable[[], bool]) -> BrokerError | None:
        """Try the removal for a while, as long as `still` returns True; return the error if something is left to the
        operator.

        KeptError: nothing is removed now, since messages have come, or the link may be defined again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        attempt = 1
        while still() and (error := await self._try(deadline, still)) is not None:
            if not still():
                return None
            attempt += 1
            delay = waits.delay(attempt, self._link.settings.reconnect_delay, random.random())
            if isinstance(error, PermanentError) or loop.time() + delay > deadline:
                return error
            await asyncio.sleep(delay)
        return None

    async def _try(self, deadline: float, still: Callable[[], bool]) -> BrokerError | None:
        try:
            async with asyncio.timeout_at(deadline):
                async with await self._brokers.control(self._upstream) as up:
                    queue = upstream_queue_name(self._link, up.connection.vhost, self._cluster)
                    if not names.are_too_long(queue):  # or nothing was ever built
                        await self._demolish(up.connection, queue, still)
        except BrokerError as error:
            # A queue of another type than is defined now: brokers close the connection over a conditional deletion.
            cause = error.__cause__ or error
            if isinstance(cause, ConnectionClosedError) and cause.code == NOT_IMPLEMENTED:
                self._is_quorum = self._may_cost_connection = True
            return error
        except TimeoutError:
            return InDoubtError(f"no answer in {PATIENCE:g} s", where=f"upstream {self._link.upstream}")
        return None

    async def _demolish(self, up: Connection, queue: str, still: Callable[[], bool]) -> None:
        if self._may_cost_connection:
            async with await self._brokers.trial(self._upstream, up.uri) as spare:
                await self._delete(spare, queue, still)
        else:
            await self._delete(up, queue, still)
        await _delete_exchanges(up, self._link, queue)

    async def _delete(self, up: Connection, queue: str, still: Callable[[], bool]) -> None:
        # Connecting may have taken long, and by now the link may be wanted again.
        readings = READINGS
        while self._brokers.holds_removals(self._link) and readings:
            readings -= 1
            await asyncio.sleep(BETWEEN_READINGS)
        if not readings or not still():
            raise KeptError(f"queue {queue!r} is kept: the link may be defined again", where=up.where)
        # A queue with another consumer is kept: it is used by something else now.
        await upstream_objects.delete_queue(up, queue, if_empty=not self._messages, is_quorum=self._is_quorum)


async def _delete_exchanges(up: Connection, link: ExchangeLink, queue: str) -> None:
    """Delete the internal exchanges, and the canary."""
    for letter in names.LETTERS:
        await upstream_objects.delete_exchange(up, names.internal_exchange(queue, letter))
    await Canary(up, link.remote_name, queue).remove()


class SweptLink(Protocol):
    """A link that is being run, with its state."""

    link: Link
    state: LinkState
    finished: asyncio.Future[None]


async def sweep(runners: Iterable[SweptLink], brokers: Brokers, former: str) -> None:
    """Remove what is left under the former name, for every link once it runs under the new one; links of a mode that
    keeps all are left alone."""
    swept = (each for each in runners if each.link.cleans_up)
    await asyncio.gather(*(_sweep(runner, brokers, former) for runner in swept))


async def _sweep(runner: SweptLink, brokers: Brokers, former: str) -> None:
    pause = FIRST_PAUSE
    while runner.state.status is not Status.RUNNING:
        if runner.finished.done():
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    link = runner.link
    if not isinstance(link, ExchangeLink):  # no other kind names anything upstream after its downstream
        return
    try:
        upstream = brokers.federation_ends(link).source
        async with await brokers.control(upstream) as up:
            queue = upstream_queue_name(link, up.connection.vhost, former)
            if names.are_too_long(queue):  # so there is none
                return
            await _wait_until_unused(up.connection, queue)
            if former == brokers.cluster:  # it has its former name again
                return
            # From here on everything goes to the new queue alone; what is in the former one is in no other.
            await _delete_exchanges(up.connection, link, queue)
            is_quorum = link.settings.queue_type is QueueType.QUORUM
            if is_quorum:
                async with await brokers.trial(upstream, up.connection.uri) as spare:
                    await upstream_objects.delete_queue(spare, queue, if_empty=True, is_quorum=True)
            else:
                await upstream_objects.delete_queue(up.connection, queue, if_empty=True)
    except BrokerError as error:
        log.warning("left under the downstream's former name", link=link.id, former=former, error=str(error))


async def _wait_until_unused(connection: Connection, queue: str) -> None:
    """Wait until the queue has no consumer; raise TransientError if it keeps one: another cluster may have that name by
    now, and what is there is that one's then."""
    loop = asyncio.get_running_loop()
    until = loop.time() + UNUSED_WITHIN
    while await count_consumers(connection, queue):
        if loop.time() > until:
            raise TransientError(f"queue {queue!r} is kept: it has another consumer", where=connection.where)
        await asyncio.sleep(FIRST_PAUSE)
