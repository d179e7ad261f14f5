"""Runs one link: executes what its lifecycle decides, and tells it what became of that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from agent.amqp.pool import Shared
from agent.amqp.wire.splice import Counts
from agent.core import backoff, lifecycle
from agent.core.fields import long, text
from agent.core.lifecycle import Effect, Event, LinkState, Side
from agent.core.model import Binding, CleanupMode, Link
from agent.errors import AgentError, BrokerError, PermanentError
from agent.runtime.session import ExchangeSession, Memory, ServedElsewhereError, clean_up
from agent.runtime.world import World

LOOK_AGAIN: Final = 5.0  # whether who serves a link has let go
ASSERT_EVERY: Final = 20.0
CLEAN_UP_PATIENCE: Final = 30.0

OnChange = Callable[["LinkRunner", LinkState], None]


class LinkRunner:
    """One exchange link. `on_change` is told every change of its state."""

    def __init__(self, link: Link, bindings: frozenset[Binding], world: World, *, on_change: OnChange) -> None:
        self.link = link
        self.state = LinkState()
        self.counts = Counts()
        self.note = ""
        self.finished = asyncio.Event()
        self._bindings = bindings
        self._world = world
        self._on_change = on_change
        self._memory = Memory()
        self._session: ExchangeSession | None = None
        self._shared: list[Shared] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._opened_at = 0.0
        self._out_of_step = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return self._session.in_flight if self._session else 0

    def send(self, event: Event) -> None:
        before = self.state
        self.state, effects = lifecycle.step(before, event)
        for effect in effects:
            self._execute(effect)
        if self.state != before:
            self._on_change(self, before)

    def redefine(self, link: Link) -> None:
        """The definition changed: the link starts again, its queue stays."""
        self.link = link
        self.send(lifecycle.Restart())

    def rebind(self, bindings: frozenset[Binding]) -> None:
        if bindings != self._bindings:
            self._bindings = bindings
            self._out_of_step.set()

    def _execute(self, effect: Effect) -> None:
        match effect:
            case lifecycle.Open():
                self._opening = self._begin(self._open(), "open")
            case lifecycle.Close(settle):
                self._begin(self._close(settle=settle), "close")
            case lifecycle.Wait(attempt, slow):
                upper, chance = self.link.settings.reconnect_delay, random.random()
                delay = backoff.slow_delay(upper, chance) if slow else backoff.delay(attempt, upper, chance)
                self._timer = self._loop.call_later(delay, self.send, lifecycle.RetryDue())
            case lifecycle.CancelWait():
                if self._timer is not None:
                    self._timer.cancel()
            case lifecycle.HoldReading():
                self._shared[0].connection.wire.hold_reading(self)
            case lifecycle.ReleaseReading():
                self._shared[0].connection.wire.release_reading(self)
            case lifecycle.CleanUp():
                self._begin(self._clean_up(), "clean up")
            case lifecycle.Finished():
                self.finished.set()

    def _begin(self, work: Coroutine[Any, Any, None], doing: str) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=f"link {self.link.id}: {doing}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self) -> None:
        try:
            await self._build()
        except ServedElsewhereError as error:
            self.send(lifecycle.StandAside(str(error)))
            self._loop.call_later(LOOK_AGAIN, self.send, lifecycle.TakeOver())
        except BrokerError as error:
            self.send(lifecycle.Failed(str(error), permanent=isinstance(error, PermanentError)))
        except AgentError as error:
            self.send(lifecycle.Failed(str(error), permanent=True))

    async def _build(self) -> None:
        link = self.link
        if link.problem is not None:
            raise PermanentError(link.problem)
        if link.exchange is None:
            raise PermanentError(f"links of kind {link.kind} can't be run yet")
        up = await self._world.upstream(link)
        self._shared.append(up)
        down = await self._world.local(link)
        self._shared.append(down)
        native = (
            ("x-max-hops", long(link.settings.max_hops)),
            ("x-downstream-name", text(self._world.cluster)),
            ("x-downstream-vhost", text(link.vhost)),
        )
        self._session = ExchangeSession(
            link,
            link.exchange,
            up=up.connection,
            down=down.connection,
            cluster=self._world.cluster,
            counts=self.counts,
            memory=self._memory,
            speaks_plugin=await self._world.knows_plugin(link, native),
        )
        self._out_of_step.clear()
        await self._session.open(self._bindings)
        self.note = self._memory.note
        self._opened_at = self._loop.time()
        self.send(lifecycle.Opened())
        self._begin(self._watch(self._session), "watch")
        self._begin(self._keep_in_step(self._session), "bindings")

    async def _watch(self, session: ExchangeSession) -> None:
        """Waits for the first end of what the link stands on."""
        down = self._shared[1].connection
        stop_listening = down.listen_blocked(self._blocked)
        try:
            done, _ = await asyncio.wait(session.ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_listening()
        if session is self._session:
            steady = self._loop.time() - self._opened_at > self.link.settings.reconnect_delay
            self.send(lifecycle.Failed(self._explain(done.pop().result()), steady=steady))

    def _explain(self, error: BrokerError) -> str:
        return str(error)

    def _blocked(self, reason: str | None) -> None:
        if reason is None:
            self.send(lifecycle.Unblocked(Side.DOWNSTREAM))
        else:
            self.send(lifecycle.Blocked(Side.DOWNSTREAM, reason))

    async def _keep_in_step(self, session: ExchangeSession) -> None:
        """Follows the bindings, and binds all of them again now and then: the upstream exchange may be a new one."""
        while session is self._session and not any(end.done() for end in session.ends):
            try:
                async with asyncio.timeout(ASSERT_EVERY):
                    await self._out_of_step.wait()
            except TimeoutError:
                work = session.assert_bindings()
            else:
                self._out_of_step.clear()
                work = session.follow(self._bindings)
            try:
                await work
            except BrokerError as error:
                if session is self._session:
                    self._memory.letter = None
                    self.send(lifecycle.Failed(str(error), permanent=isinstance(error, PermanentError)))

    async def _close(self, *, settle: bool) -> None:
        opening, session = self._opening, self._session
        if opening is not None and not opening.done() and opening is not asyncio.current_task():
            opening.cancel()
            await asyncio.wait([opening])
            session = self._session
        self._session = None
        if session is not None:
            if settle:
                with suppress(BrokerError, TimeoutError):
                    await session.close()
            await session.leave()
        shared, self._shared = self._shared, []
        for one in shared:
            one.connection.wire.release_reading(self)
            await self._world.pool.release(one)
        self.send(lifecycle.Closed())

    async def _clean_up(self) -> None:
        """Tries for a while; what can't be removed now is left to the operator, and said."""
        if self.link.settings.resource_cleanup_mode is not CleanupMode.NEVER:
            try:
                async with asyncio.timeout(CLEAN_UP_PATIENCE):
                    up = await self._world.upstream(self.link)
                    await clean_up(self.link, up.connection, self._world.cluster)
                    await self._world.pool.release(up)
            except (BrokerError, TimeoutError) as error:
                self.note = f"what stands upstream could not be removed: {error}"
        self.send(lifecycle.CleanedUp())
