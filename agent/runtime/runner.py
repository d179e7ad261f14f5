"""Runs one link: executes what its lifecycle decides, and reports the result to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import structlog

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.amqp.failures import alarm_of
from agent.amqp.wire.channel import UnansweredError
from agent.core.links import backoff, lifecycle
from agent.core.links.lifecycle import Effect, Event, LinkState, Phase
from agent.core.links.restarts import asks_the_same
from agent.core.links.upstream_account import LinkCounts, QueueCounts, UpstreamAccount
from agent.core.model import Binding, Link, ShovelLink
from agent.core.replicas.sharing import Elsewhere
from agent.core.replicas.slots import slot_of
from agent.errors import AgentError, BrokerError, Failure, FailureKind, PermanentError, Side
from agent.links.connections import Connections
from agent.links.ends import End
from agent.links.errors import InDoubtError, KeptError, ServedElsewhereError
from agent.links.flow import Flow
from agent.links.kind import Removing, RunnableLink, Session
from agent.links.registry import Kinds
from agent.runtime.resting import Resting
from agent.runtime.upstream_looks import Asked
from agent.status.entry import Gauges
from agent.tasks import GuardedTasks

LOOK_AGAIN: Final = 5.0  # at the latest: whether who serves a link has let go
LOOK_SOON: Final = 0.5  # at first: whoever served it may be dead, which a broker notices within seconds
SOON: Final = 20  # attempts
APART: Final = 600.0
FILLED: Final = 1.0  # a queue that fills and empties in turns is asked no more often than this

OnChange = Callable[["LinkRunner", LinkState], None]

log = structlog.get_logger()


class Other(StrEnum):
    """Who else may serve a link."""

    PLUGIN = "the federation plugin of the downstream"
    CONSUMER = "a consumer of the upstream queue"
    REPLICA = "another agent of the group"


class LinkRunner:
    """One link of any kind. `on_change` is called at every change of its state."""

    __slots__ = (  # a dict of so many would take 1.5 KB a link
        "_account", "_apart_until", "_bindings", "_brokers", "_built_under", "_connections", "_is_renewed",
        "_is_troubled", "_keeping_up", "_kinds", "_leaving", "_linger_task", "_looked_at", "_loop",
        "_on_change", "_opened_at", "_opening", "_owner", "_removing", "_resting",
        "_resting_task", "_runnable", "_seen", "_served_by", "_session", "_tasks", "_timer", "_turn", "_unserved",
        "_was_served", "_watched", "counts", "ends", "finished", "has_recalled", "has_removed", "link", "note", "slot",
        "state",
    )  # fmt: skip

    def __init__(self, link: Link, kinds: Kinds, *, on_change: OnChange) -> None:
        self.link = link
        self.ends = kinds.ends(link)  # that its next session connects to
        self.state = LinkState()
        self.counts = Counts()
        self._account = UpstreamAccount()
        self._looked_at: tuple[str, ...] = ()  # upstream: another API or queue counts otherwise
        self.note = ""
        self._bindings: frozenset[Binding] = frozenset()
        self._brokers = kinds.brokers
        self._kinds = kinds
        self._on_change = on_change
        self._is_renewed = False  # its definition has other passwords than the open session
        self._runnable = self._made_runnable()
        self._session: Session | None = None
        self._connections = Connections(kinds.brokers, self._blocked)
        self._tasks = GuardedTasks(kinds.brokers.errors)
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[None] = self._loop.create_future()
        self._opened_at = 0.0
        self._served_by: dict[Other, str] = {}
        self._owner: str | None = None  # the other agent of the group that runs it
        self._unserved: Failure | None = None  # why that agent doesn't serve it, as far as is known
        self._was_served = False  # by somebody else, since its last session
        self.has_recalled = False  # what it is counts, whatever was remembered before
        self._turn: asyncio.Task[None] | None = None
        self.slot = slot_of(link.id)
        self._keeping_up: asyncio.Task[None] | None = None
        self._watched: list[asyncio.Future[BrokerError]] = []  # any of which ends the session
        self._apart_until = 0.0
        self._leaving: Flow | None = None  # whose messages in flight are being settled, or given back
        self._seen: tuple[object, ...] = ()
        self._is_troubled = False
        self._built_under = ""  # the downstream's cluster name when the link became unwanted
        self._removing: Removing | None = None
        self.has_removed = False  # all that it built upstream
        self._linger_task: asyncio.Task[None] | None = None
        self._resting: Resting | None = None
        self._resting_task: asyncio.Task[None] | None = None

    def gauges(self) -> Gauges:
        """What the board shows of this moment."""
        return Gauges(
            in_flight=self.in_flight,
            unsettled=self._unsettled,
            backlog=self._backlog,
            backlog_is_exact=not self._may_have_more,
            oldest_in_flight=self.waits(self._loop.time()),
            oldest_refused=self._refused_for,
            lag=self._flow.lag if self._flow else None,
            last_probe=self._flow.last_probe if self._flow else None,
            bindings=self._runnable.bound,
            known=self._runnable.known,
            prefetch=self._flow.prefetch if self._flow else 0,
            upstream_cluster=self._runnable.upstream_cluster,
            uri=self._runnable.uri,
            met=self._session.met if self._session else (),
            note="; ".join(filter(None, (self._trouble, self._idle, self.note))),
            trouble=self._trouble,
            is_refused=self._flow is not None and self._flow.is_refused,
            upstream=self._account.compared,
            removal=self._removing.text if self._removing else "",
            remaining=self._flow.remaining if self._flow else self._runnable.remaining,
            destination=self._connections.down.connection.uri if self._connections.down else None,
            owner=self._owner,
            runs_here=Other.REPLICA not in self._served_by,
        )

    @property
    def has_completed(self) -> bool:
        """Whether it has done all that its definition asks for, and has ended."""
        return self.state.completed and self.state.phase is Phase.IDLE

    @property
    def _backlog(self) -> int | None:
        if self._removing is not None:
            return self._removing.messages
        if self._resting is not None:
            return self._resting.messages
        if self._session is not None:
            seen = self._session.backlog
            return None if seen == 0 and self._is_unread else seen
        return None

    @property
    def _may_have_more(self) -> bool:
        return self._is_unread and self._flow is not None and (self._backlog or 0) <= self._flow.prefetch

    @property
    def _is_unread(self) -> bool:
        """While it is blocked little is read: messages that the source has sent may be counted nowhere."""
        return bool(self.state.blocked) and not (self._flow is not None and self._flow.counts_all)

    @property
    def source(self) -> End:
        """Where its messages come from."""
        return self.ends.source

    @property
    def local(self) -> Shared | None:
        """The connection to the downstream, where there is one."""
        return self._connections.down

    @property
    def _flow(self) -> Flow | None:
        return self._session.flow if self._session else None

    @property
    def _trouble(self) -> str:
        return self._flow.trouble if self._flow else ""

    @property
    def _idle(self) -> str:
        return self._flow.idle if self._flow else ""

    @property
    def in_flight(self) -> int:
        return self._flow.in_flight if self._flow else 0

    @property
    def _unsettled(self) -> int:
        return sum(flow.unaccounted for flow in (self._flow, self._leaving) if flow is not None)

    def waits(self, now: float) -> float:
        """For how long its oldest message has waited for its confirm."""
        oldest = self._flow.oldest_unconfirmed if self._flow else None
        return 0.0 if oldest is None else now - oldest

    @property
    def _refused_for(self) -> float:
        """For how long the oldest message waits that the downstream refused."""
        oldest = self._flow.oldest_refused if self._flow else None
        return 0.0 if oldest is None else self._loop.time() - oldest

    @property
    def upstream_queue(self) -> tuple[Asked, str] | None:
        """Where the upstream's HTTP API counts the link's messages. Probes would count, too."""
        link = self.link
        if isinstance(link, ShovelLink) or not link.management or link.settings.probe is not None:
            return None
        if self._served_by or not self.state.started or self.state.unwanted is not None:
            return None
        vhost = (self._runnable.uri or link.uris[0]).vhost(link.vhost)
        queue = self._runnable.waits_in(vhost)
        return None if queue is None else (Asked(link.management, vhost, link.upstream), queue)

    def look_upstream(self, counts: QueueCounts | None, now: float) -> None:
        found = self.upstream_queue
        place = () if found is None else (*found[0].place, found[1])
        if counts is None or place != self._looked_at:
            self._account = self._account.interrupted()
        self._looked_at = place
        if counts is None:
            return
        own = self.counts
        settled = own.forwarded + sum(own.dropped.values()) + sum(own.quarantined.values())
        self._account = self._account.look(counts, LinkCounts(settled, own.redelivered), now)

    def set_apart(self, now: float) -> None:
        """For a while it shares no connection: others would wait for it."""
        self._apart_until = now + APART

    def tick(self, now: float) -> bool:
        """Looks after the link; answers whether anything moved since the last time."""
        session, counts = self._session, self.counts
        if session is not None and not self.state.blocked and self.state.stalled is None and session.is_quiet(now):
            return False
        seen: tuple[object, ...] = ()
        if session is not None and self.state.phase is Phase.OPEN:
            self._judge(session.tick(now, is_blocked=bool(self.state.blocked)))
            self._tell_trouble()
            self._share_again(now)
            dropped, trouble = sum(counts.dropped.values()), self._trouble
            bound, backlog = self._runnable.bound, session.backlog
            notes = self.note, trouble, self._idle
            aside = sum(counts.quarantined.values())
            probe = self._flow.last_probe if self._flow else None
            seen = (probe, counts.forwarded, counts.bytes, counts.returned, dropped, aside, backlog, bound, *notes)
        if self._removing is not None:
            seen = (self._removing.looks, self._removing.messages)
        elif self._resting is not None:
            seen = ("resting", self._resting.messages)
        moved = seen != self._seen or self.in_flight > 0
        self._seen = seen
        return moved

    def _judge(self, waited: float) -> None:
        is_stalled, unproved = self.state.stalled is not None, self._flow.unproved if self._flow else ""
        is_due = waited >= self._brokers.stall_after
        if (is_due or unproved) and not is_stalled:
            held_at = self._flow.held_at if self._flow else Side.DOWNSTREAM
            stalled = lifecycle.Stalled(self._why_stalled(waited), held_at) if is_due else self._unproved(unproved)
            self.send(stalled)
        elif not is_due and not unproved and is_stalled:
            self.send(lifecycle.Progressed())

    def _unproved(self, why: str) -> lifecycle.Stalled:
        return lifecycle.Stalled(why, self._flow.unproved_by if self._flow else Side.DOWNSTREAM)

    def _why_stalled(self, waited: float) -> str:
        """The downstream owes nothing where nothing is on the way to it."""
        trouble = self._trouble
        if trouble and not self.in_flight:
            return trouble
        late = f"messages wait, and the downstream has confirmed none for {waited:.0f} s"
        return f"{late}; {trouble}" if trouble else late

    def _tell_trouble(self) -> None:
        """Once, when messages begin not to go through; how many there are is shown, and not logged each time."""
        trouble = self._trouble
        if trouble and not self._is_troubled:
            link = self.link
            log.warning("messages held", link=link.id, vhost=link.vhost, name=link.name, reason=trouble)
        self._is_troubled = bool(trouble)

    def _share_again(self, now: float) -> None:
        """A link that was suspected for long enough gets its place among the others again."""
        flow, is_over = self._flow, not self._runnable.is_suspected(now)
        if flow is not None and flow.is_watched and is_over and self.state.phase is Phase.OPEN:
            log.info("link shares connections again", link=self.link.id, vhost=self.link.vhost, name=self.link.name)
            self.send(lifecycle.Restart())

    def send(self, event: Event) -> None:
        before = self.state
        self.state, effects = lifecycle.step(before, event)
        for effect in effects:
            self._execute(effect)
        if self.state != before:
            self._rest()
            self._on_change(self, before)

    def _rest(self) -> None:
        """While it is paused, or only the downstream fails, its queue is still looked at."""
        is_due = self._is_paused or self._lacks_downstream
        if is_due and self._resting is None:
            source = self._kinds.ends(self.link).source
            resting = self._resting = Resting(self._brokers, source, self._runnable.waits_in)
            self._resting_task = self._keep(resting.run, "look at the queue of a link without a session")
        elif not is_due:
            self._rest_no_more()

    @property
    def _is_paused(self) -> bool:
        return self.state.status is lifecycle.Status.PAUSED and self.state.phase is Phase.IDLE

    @property
    def _lacks_downstream(self) -> bool:
        """Also while it tries again: then nothing is known of what comes of it."""
        broken = self.state.broken
        is_apart = self.state.wants_to_run and self.state.phase in {Phase.WAITING, Phase.OPENING}
        return is_apart and broken is not None and broken.failure.side is Side.DOWNSTREAM

    def _rest_no_more(self) -> None:
        self._resting = None
        if self._resting_task is not None:
            self._resting_task.cancel()
            self._resting_task = None

    def start(self) -> None:
        if not self.state.started:
            self.send(lifecycle.Start())

    def unwant(self) -> None:
        """No definition asks for the link any more; what it built upstream is removed later."""
        if self.state.unwanted is None:
            self._built_under = self._brokers.cluster
            self.send(lifecycle.Unwanted(self._loop.time()))

    def want(self) -> None:
        """A definition asks for the link again: it comes back with what it had."""
        if self.state.unwanted is not None:
            self.send(lifecycle.Wanted())

    def redefine(self, link: Link) -> None:
        """The definition changed: the link starts again, its queue stays. One that has done all that it was defined
        for starts again only for something else."""
        is_done = self.state.completed and asks_the_same(self.link, link)
        self.link = link
        self._make_runnable_again()
        self._rest_no_more()  # its queue may be another one now
        self._rest()
        if not is_done:
            self.send(lifecycle.Restart())

    def renew(self, link: Link) -> None:
        """The definition has other passwords and nothing else: an open session goes on, and the next one uses them."""
        if self.state.phase is not Phase.OPEN:
            self.redefine(link)
            return
        self.link = link
        self._is_renewed = True

    def _make_runnable_again(self) -> None:
        self._account = self._account.interrupted()
        former, self._runnable = self._runnable, self._made_runnable()
        self._runnable.inherit(former)
        self.ends, self._is_renewed = self._kinds.ends(self.link), False

    def served_by(self, other: Other, reason: str | None) -> None:
        """Somebody else serves the link, or, without a reason, does so no more; it waits for the last of them."""
        if reason is not None:
            self._served_by[other] = reason
            self._account = self._account.interrupted()
            self._was_served = True
        elif self._served_by.pop(other, None) is None:
            return
        if self._served_by:
            unserved = self._unserved if self._served_by.keys() == {Other.REPLICA} else None
            self.send(lifecycle.StandAside("; ".join(self._served_by.values()), unserved))
        else:
            self.send(lifecycle.TakeOver())

    def has_completed_before(self) -> None:
        """It has done what it is defined for, here or elsewhere. That nobody remembers so is no reason to do it again:
        what is remembered may be lost, and only an operator or another definition asks for that.
        """
        self.send(lifecycle.Completed(earlier=True))

    @property
    def is_at_rest(self) -> bool:
        """Whether it holds no connection, and none is on its way."""
        return self.state.phase in {Phase.IDLE, Phase.WAITING, Phase.GONE}

    def run_elsewhere(self, verdict: Elsewhere) -> None:
        """Another agent of the group runs the link, and remembers whether it is paused."""
        self._owner = verdict.owner
        self._unserved = None if verdict.is_served else verdict.failure or lifecycle.NO_LEASE
        if self._served_by.get(Other.REPLICA) == verdict.reason:
            return
        self._served_by.pop(Other.CONSUMER, None)
        self.served_by(Other.REPLICA, verdict.reason)
        if verdict.owner is not None:  # that agent remembers it
            self.has_recalled = False
            self.send(lifecycle.Resume())

    def run_here(self) -> None:
        """No other agent of the group runs the link."""
        self._owner = self._unserved = None
        self.served_by(Other.REPLICA, None)

    def waits_for(self, other: Other) -> bool:
        return other in self._served_by

    def rebind(self, bindings: frozenset[Binding]) -> None:
        self._bindings = bindings
        if self._session is not None:
            self._session.follow(bindings)

    def _made_runnable(self) -> RunnableLink:
        return self._kinds.runnable(self.link, self.counts, self._take_notes)

    def _execute(self, effect: Effect) -> None:
        match effect:
            case lifecycle.Open():
                self._opening = self._begin(self._open(), "open")
            case lifecycle.Close(settle):
                self._begin(self._close(settle=settle), "close", owes=lifecycle.Closed())
            case lifecycle.Wait(attempt, slow):
                self._wait(attempt, slow=slow)
            case lifecycle.CancelWait():
                if self._timer is not None:
                    self._timer.cancel()
            case lifecycle.HoldReading():
                self._connections.hold()
            case lifecycle.ReleaseReading():
                self._connections.go_on()
            case lifecycle.Finished():
                self._finish()
            case _:
                self._execute_removal(effect)

    def _execute_removal(self, effect: Effect) -> None:
        self._removing = None
        match effect:
            case lifecycle.Linger(since):
                removing = self._removing = self._runnable.removing(cluster=self._built_under, since=since)
                self._linger_task = self._keep(lambda: self._linger(removing), "wait for the removal")
            case lifecycle.CancelLinger():
                if self._linger_task is not None:
                    self._linger_task.cancel()
            case lifecycle.CleanUp(messages):
                self._begin(self._clean_up(messages=messages), "clean up", owes=lifecycle.CleanedUp())

    def _wait(self, attempt: int, *, slow: bool) -> None:
        upper, chance = self.link.settings.reconnect_delay, random.random()
        delay = backoff.slow_delay(upper, chance) if slow else backoff.delay(attempt, upper, chance)
        self._timer = self._loop.call_later(delay, self.send, lifecycle.RetryDue())

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)
        self._tasks.cancel()

    def _begin(self, work: Coroutine[Any, Any, None], doing: str, *, owes: Event | None = None) -> asyncio.Task[None]:
        """`owes` is what the lifecycle waits for, whatever comes between."""
        return self._tasks.once(
            f"link: {doing}",
            work,
            # An unexpected error must not leave a link that neither runs nor shows why.
            on_error=lambda error: self.send(owes or lifecycle.Failed(f"unexpected error: {type(error).__name__}")),
            link=self.link.id,
        )

    def _keep(self, work: Callable[[], Coroutine[Any, Any, None]], doing: str) -> asyncio.Task[None]:
        """What no answer to the lifecycle can stand for: after an unforeseen error it is tried again."""
        return self._tasks.keep(f"link: {doing}", work, link=self.link.id)

    async def _open(self) -> None:
        try:
            await self._build()
        except ServedElsewhereError as error:
            self.served_by(Other.CONSUMER, str(error))
            queue = error.queue
            if self._turn is not None:
                self._turn.cancel()
            self._turn = self._keep(lambda: self._await_turn(queue), "await turn")
        except BrokerError as error:
            self._broken(error)
        except AgentError as error:
            invalid = Failure(FailureKind.INVALID, side=Side.UPSTREAM, is_permanent=True)
            self.send(lifecycle.Failed(str(error), invalid))

    async def _build(self) -> None:
        link = self.link
        if link.problem is not None:
            raise PermanentError(link.problem)
        now = self._loop.time()
        apart = now < self._apart_until or self._runnable.is_suspected(now)
        if self._was_served:
            self._runnable.was_served_by_another()
            self._was_served = False
        session = self._session = self._runnable.session(self._connections, lambda: self._bindings, apart=apart)
        await session.open()
        self._take_notes()
        self._opened_at = self._loop.time()
        self.send(lifecycle.Opened())
        self._opening = None
        self._keeping_up = self._begin(self._keep_up(session), "keep up")
        self._watched = session.ends
        ended, context = self._ended, copy_context()  # one of each for all of them, which saves 0.8 KB a link
        for end in self._watched:
            end.add_done_callback(ended, context=context)

    def _take_notes(self) -> None:
        self._take_note(self._runnable.notes)

    def _take_note(self, note: str) -> None:
        """Something an operator should know of a link that works nevertheless."""
        if note and note != self.note:
            log.warning("link noted", link=self.link.id, vhost=self.link.vhost, name=self.link.name, note=note)
        self.note = note

    async def _await_turn(self, queue: str) -> None:
        """Looks, ever less often, whether the queue has lost its consumer; that of a lost connection soon goes."""
        attempt = 1
        while Other.CONSUMER in self._served_by and self.state.stop is None:
            attempt += 1
            upper = LOOK_SOON if attempt < SOON else LOOK_AGAIN
            await asyncio.sleep(backoff.delay(attempt, upper, random.random()))
            try:
                is_free = await self._runnable.is_free(queue)
            except BrokerError:
                is_free = True  # opening the link will show what is wrong
            if is_free:
                self.served_by(Other.CONSUMER, None)

    def _ended(self, end: asyncio.Future[BrokerError]) -> None:
        """One of them has; others that end with it are called for, too."""
        if self._session is not None and end in self._watched:
            self._unwatch()
            self._begin(self._give_reason(self._session, end), "watch")

    async def _give_reason(self, session: Session, end: asyncio.Future[BrokerError]) -> None:
        self._broken(session.explain(end))

    def _unwatch(self) -> None:
        for end in self._watched:
            end.remove_done_callback(self._ended)
        self._watched = []

    def _blocked(self, reason: str | None) -> None:
        if reason is None:
            self.send(lifecycle.Unblocked(Side.DOWNSTREAM))
        else:
            self.send(lifecycle.Blocked(Side.DOWNSTREAM, reason, alarm_of(reason)))

    async def _keep_up(self, session: Session) -> None:
        try:
            await session.keep_up()
        except ServedElsewhereError as error:
            self.send(lifecycle.Failed(str(error)))  # opening it again fails the same way, and then waits
        except BrokerError as error:
            self._broken(error)
        else:
            self.send(lifecycle.Completed())

    def _broken(self, error: BrokerError) -> None:
        if isinstance(error, UnansweredError):  # a broker may close the connection over what it couldn't answer
            self.set_apart(self._loop.time())
        lasted, opened = self._loop.time() - self._opened_at, self.state.phase is Phase.OPEN
        steady = opened and backoff.is_steady(lasted, self.link.settings.reconnect_delay)
        failure = error.failure
        failure = replace(failure, side=failure.side or Side.UPSTREAM)  # that is where most questions go
        self.send(lifecycle.Failed(str(error), failure, steady))

    async def _close(self, *, settle: bool) -> None:
        await self._end_tasks()
        held = self._connections.detach()
        flow = self._leaving = self._flow
        self._session = None
        try:
            if flow is not None:
                await self._end(flow, settle=settle)
        finally:
            self._leaving = None
            await self._connections.leave(held)
        if self._is_renewed:
            self._make_runnable_again()
        self.send(lifecycle.Closed())

    async def _end(self, flow: Flow, *, settle: bool) -> None:
        """Whatever happens meanwhile: a consumer that is left would keep the link from its own queue."""
        try:
            if settle:
                with suppress(BrokerError, TimeoutError):
                    await flow.close()
        finally:
            await flow.leave()

    async def _end_tasks(self) -> None:
        """None of a session's own works on while it is closed."""
        self._unwatch()
        tasks = [task for task in (self._opening, self._keeping_up) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._opening = self._keeping_up = None

    async def _linger(self, removing: Removing) -> None:
        self.send(lifecycle.RemovalDue(messages=await removing.run()))

    async def _clean_up(self, *, messages: bool) -> None:
        self.has_removed = False
        error = await self._runnable.remove(cluster=self._built_under, messages=messages, still=self._is_still_unwanted)
        if isinstance(error, KeptError) or (isinstance(error, InDoubtError) and not messages):
            await asyncio.sleep(FILLED)
            self.send(lifecycle.Kept())
            return
        self.has_removed = error is None
        if error is not None:
            self._take_note(f"what exists upstream could not be removed: {error}")
        self.send(lifecycle.CleanedUp())

    def _is_still_unwanted(self) -> bool:
        return self.state.unwanted is not None and self.state.stop is None
