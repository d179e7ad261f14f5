"""The sessions of a link, one after another: opened, watched for their end, and closed.

The result of a session is sent to the link's lifecycle, which decides what comes next. While there is no session, the
backlog of the link may be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Final, Protocol

from agent.amqp.connection_pool import Shared
from agent.amqp.failures import alarm_of
from agent.amqp.rpc import count_messages
from agent.amqp.wire.channel import UnansweredError
from agent.core.links import lifecycle, waits
from agent.core.links.lifecycle import Event, LinkState, Phase, Signal
from agent.core.model import Link
from agent.errors import AgentError, BrokerError, Failure, FailureKind, PermanentError, Side
from agent.links.brokers import Brokers, Connections
from agent.links.consumer import ServedElsewhereError
from agent.links.ends import End
from agent.links.flow import Flow
from agent.links.kind import RunnableLink, Session

DEDICATED_FOR: Final = 600.0


class Owner(Protocol):
    """The link whose sessions they are."""

    link: Link
    state: LinkState

    def send(self, event: Event) -> None: ...

    def begin(
        self, work: Coroutine[Any, Any, None], doing: str, *, owes: Event | None = None
    ) -> asyncio.Task[None]: ...

    def take_notes(self) -> None:
        """The notes of the runnable link, for operators, may have changed."""

    def stand_by_for_consumer(self, error: ServedElsewhereError) -> None:
        """Another consumer consumes from the link's queue."""

    def note_closed(self) -> None:
        """Everything of the session has ended."""


class SessionRunner:
    __slots__ = (  # a dict of so many would take 1.5 KB a link
        "_brokers", "_connections", "_dedicated_until", "_destination", "_keeping_up", "_leaving", "_loop",
        "_opened_at", "_opening", "_owner", "_source", "_watched", "current",
    )  # fmt: skip

    def __init__(self, owner: Owner, brokers: Brokers) -> None:
        self.current: Session[Any] | None = None
        self._owner = owner
        self._brokers = brokers
        self._connections = Connections(brokers, self._blocked)
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[None] | None = None
        self._keeping_up: asyncio.Task[None] | None = None
        self._watched: list[asyncio.Future[BrokerError]] = []  # any of which ends the session
        self._leaving: Flow | None = None  # whose messages in flight are being settled, or given back
        self._source = End("", ())  # of the session that is opened, or was last
        self._destination = ""  # in words
        self._opened_at = 0.0
        self._dedicated_until = 0.0

    @property
    def flow(self) -> Flow | None:
        return self.current.flow if self.current else None

    @property
    def unsettled(self) -> int:
        return sum(flow.unaccounted for flow in (self.flow, self._leaving) if flow is not None)

    @property
    def local(self) -> Shared | None:
        """The connection to the downstream, where there is one."""
        return self._connections.down

    def dedicate_connections(self) -> None:
        """Let the link share no connection for a limited time: others would wait for it."""
        self._dedicated_until = self._loop.time() + DEDICATED_FOR

    def hold_reading(self) -> None:
        self._connections.hold()

    def release_reading(self) -> None:
        self._connections.go_on()

    def open(self, runnable: RunnableLink[Any]) -> None:
        self._source, self._destination = runnable.ends.source, runnable.ends.destination.where
        self._opening = self._owner.begin(self._open(runnable), "open")

    async def _open(self, runnable: RunnableLink[Any]) -> None:
        owner = self._owner
        try:
            if owner.link.problem is not None:
                raise PermanentError(owner.link.problem)
            async with self._brokers.changing(self._source, owner.link.vhost):
                await self._build(runnable)
        except ServedElsewhereError as error:
            owner.stand_by_for_consumer(error)
        except BrokerError as error:
            self._broken(error)
        except AgentError as error:
            invalid = Failure(FailureKind.INVALID, side=Side.UPSTREAM, is_permanent=True)
            owner.send(lifecycle.Failed(str(error), invalid))

    async def _build(self, runnable: RunnableLink[Any]) -> None:
        now = self._loop.time()
        dedicated = now < self._dedicated_until or runnable.is_suspected(now)
        session = self.current = runnable.session(self._connections, dedicated=dedicated)
        await session.open()
        owner = self._owner
        owner.take_notes()
        self._opened_at = self._loop.time()
        owner.send(Signal.OPENED)
        self._opening = None
        self._keeping_up = owner.begin(self._keep_up(session), "keep up")
        self._watched = session.ends
        ended, context = self._ended, copy_context()  # one of each for all of them, which saves 0.8 KB a link
        for end in self._watched:
            end.add_done_callback(ended, context=context)

    def _ended(self, end: asyncio.Future[BrokerError]) -> None:
        """Handle the end of a connection or channel of the session. Others that end with it are reported here, too."""
        if self.current is not None and end in self._watched:
            self._unwatch()
            self._owner.begin(self._explain(self.current, end), "watch")

    async def _explain(self, session: Session[Any], end: asyncio.Future[BrokerError]) -> None:
        self._broken(session.explain(end))

    def _unwatch(self) -> None:
        for end in self._watched:
            end.remove_done_callback(self._ended)
        self._watched = []

    async def _keep_up(self, session: Session[Any]) -> None:
        try:
            await session.keep_up()
        except ServedElsewhereError as error:
            self._owner.send(lifecycle.Failed(str(error)))  # opening it again fails the same way, and then waits
        except BrokerError as error:
            self._broken(error)
        else:
            self._owner.send(lifecycle.Completed())

    def _blocked(self, reason: str | None) -> None:
        if reason is None:
            self._owner.send(lifecycle.Unblocked(Side.DOWNSTREAM))
        else:
            self._owner.send(lifecycle.Blocked(Side.DOWNSTREAM, reason, alarm_of(reason), self._destination))

    def _broken(self, error: BrokerError) -> None:
        if isinstance(error, UnansweredError):  # a broker may close the connection over what it couldn't answer
            now = self._loop.time()
            ends = now + DEDICATED_FOR
            if self._brokers.may_have_dedicated(self._source, self._owner.link.id, now=now, until=ends):
                self.dedicate_connections()
        owner = self._owner
        lasted, opened = self._loop.time() - self._opened_at, owner.state.phase is Phase.OPEN
        steady = opened and waits.is_steady(lasted, owner.link.settings.reconnect_delay)
        failure = error.failure
        failure = replace(failure, side=failure.side or Side.UPSTREAM)  # that is where most questions go
        owner.send(lifecycle.Failed(str(error), failure, steady))

    def close(self, *, settle: bool) -> None:
        """Close the session. With `settle` messages in flight may still be confirmed."""
        self._owner.begin(self._close(settle=settle), "close", owes=Signal.CLOSED)

    async def _close(self, *, settle: bool) -> None:
        await self._end_tasks()
        held = self._connections.detach()
        flow, session = self.flow, self.current
        self._leaving, self.current = flow, None
        try:
            if flow is not None:
                await self._end(flow, settle=settle)
            if session is not None:
                await session.leave(is_settled=settle)
        finally:
            self._leaving = None
            await self._connections.leave(held)
        self._owner.note_closed()

    async def _end(self, flow: Flow, *, settle: bool) -> None:
        """Leave the flow, whatever happens meanwhile: a consumer that is left would keep the link from its own
        queue."""
        try:
            if settle:
                with suppress(BrokerError, TimeoutError):
                    await flow.close()
        finally:
            await flow.leave()

    async def _end_tasks(self) -> None:
        """Stop the session's own tasks: none of them works on while it is closed."""
        self._unwatch()
        tasks = [task for task in (self._opening, self._keeping_up) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._opening = self._keeping_up = None


LOOK_EVERY: Final = 5.0
LOOK_PATIENCE: Final = 10.0


class IdleBacklog:
    """The backlog of a link without a session: `messages` wait; None where that can't be known now. `queue_of` returns
    the name of the queue in a vhost of the source, None where there is none while no session is open."""

    def __init__(self, brokers: Brokers, source: End, queue_of: Callable[[str], str | None]) -> None:
        self.messages: int | None = None
        self._brokers = brokers
        self._source = source
        self._queue_of = queue_of
        self._control: Shared | None = None

    async def run(self) -> None:
        """Read the depth at intervals until cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_EVERY)
        finally:
            await self._leave()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(LOOK_PATIENCE):
                self.messages = await self._count()
        except (BrokerError, TimeoutError):
            self.messages = None
            await self._leave()

    async def _count(self) -> int | None:
        if self._control is None:
            self._control = await self._brokers.control(self._source)
        queue = self._queue_of(self._control.connection.vhost)
        return None if queue is None else await count_messages(self._control, queue)

    async def _leave(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.release()
