"""Runs one link: executes what its lifecycle decides, and reports the result to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.core.links import lifecycle, waits
from agent.core.links.lifecycle import Do, Effect, Event, LinkState, Phase, Signal
from agent.core.links.reconcile import asks_the_same
from agent.core.links.served_by import Other, ServedBy
from agent.core.links.upstream_account import LinkCounts, QueueCounts, UpstreamAccount
from agent.core.model import Binding, Link
from agent.core.replicas.sharing import Elsewhere
from agent.core.replicas.slots import slot_of
from agent.errors import BrokerError, Side
from agent.links.consumer import ServedElsewhereError
from agent.links.ends import End, Ends
from agent.links.flow import Flow
from agent.links.kind import InDoubtError, KeptError, Removing, RunnableLink
from agent.links.registry import Kinds
from agent.runtime.session_runner import IdleBacklog, SessionRunner
from agent.runtime.upstream_counters import CountedVhost
from agent.status.entry import Gauges
from agent.tasks import GuardedTasks

LOOK_AGAIN: Final = 5.0  # at the latest: whether who serves a link has let go
LOOK_SOON: Final = 0.5  # at first: whoever served it may be dead, which a broker notices within seconds
SOON: Final = 20  # attempts
FILLED: Final = 1.0  # a queue that fills and empties in turns is asked no more often than this

log = structlog.get_logger()


class LinkRunner:
    """One link of any kind. `on_change` is called at every change of its state."""

    __slots__ = (  # a dict of so many would take 1.5 KB a link
        "_account",
        "_brokers",
        "_built_under",
        "_idle_backlog",
        "_idle_task",
        "_is_renewed",
        "_is_troubled",
        "_kinds",
        "_looked_at",
        "_loop",
        "_losses_logged",
        "_on_change",
        "_removal_wait",
        "_removing",
        "_runnable",
        "_seen",
        "_served_by",
        "_session",
        "_tasks",
        "_timer",
        "_turn",
        "_was_served",
        "counts",
        "ends",
        "finished",
        "has_recalled",
        "has_removed",
        "link",
        "note",
        "slot",
        "state",
    )  # fmt: skip

    def __init__(self, link: Link, kinds: Kinds, *, on_change: Callable[[LinkRunner, LinkState], None]) -> None:
        self.link = link
        self.state = LinkState()
        self.counts = Counts()
        self.note = ""
        self.slot = slot_of(link.id)
        self._brokers = kinds.brokers
        self._kinds = kinds
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._tasks = GuardedTasks(kinds.brokers.errors)
        self._timer: asyncio.TimerHandle | None = None  # of the next attempt
        self.finished: asyncio.Future[None] = self._loop.create_future()
        # Its definition and its sessions
        self._runnable = self._made_runnable()
        self.ends = self._runnable.ends  # that its next session connects to
        self._is_renewed = False  # its definition has other passwords than the open session
        self._session = SessionRunner(self, kinds.brokers)
        # Who else may serve it
        self._served_by = ServedBy()
        self._was_served = False  # by somebody else, since its last session
        self.has_recalled = False  # what it is counts, whatever was remembered before
        self._turn: asyncio.Task[None] | None = None
        # What waits for it, and what has moved
        self._account = UpstreamAccount()
        self._looked_at: tuple[str, ...] = ()  # upstream: another API or queue counts otherwise
        self._idle_backlog: IdleBacklog | None = None
        self._idle_task: asyncio.Task[None] | None = None
        self._seen: tuple[object, ...] = ()
        self._is_troubled = False
        self._losses_logged = 0  # kinds of losses
        # Its removal
        self._built_under = ""  # the downstream's cluster name when the link became unwanted
        self._removing: Removing | None = None
        self._removal_wait: asyncio.Task[None] | None = None
        self.has_removed = False  # all that it built upstream

    # What is shown of it

    def gauges(self) -> Gauges:
        """The gauges of the link at this moment, for the board."""
        flow, session, runnable = self._flow, self._session.current, self._runnable
        trouble, idle = (flow.trouble, flow.idle) if flow else ("", "")
        return Gauges(
            in_flight=self.in_flight,
            unsettled=self._session.unsettled,
            backlog=self._backlog,
            backlog_is_exact=not self._may_have_more,
            oldest_in_flight=self.waits(self._loop.time()),
            oldest_refused=self._refused_for,
            lag=flow.lag if flow else None,
            last_probe=flow.last_probe if flow else None,
            bindings=runnable.bound,
            known=runnable.known,
            prefetch=flow.prefetch if flow else 0,
            upstream_cluster=runnable.upstream_cluster,
            uri=runnable.uri,
            met=session.met if session else (),
            note="; ".join(filter(None, (trouble, idle, self.note))),
            limited_by=flow.limited_by if flow else "",
            limited_seconds=self.counts.limited_seconds + (flow.limited_for if flow else 0.0),
            trouble=trouble,
            is_refused=flow is not None and flow.is_refused,
            upstream=self._account.compared,
            removal=self._removing.text if self._removing else "",
            remaining=flow.remaining if flow else runnable.remaining,
            destination=self.local.connection.uri if self.local else None,
            owner=self._served_by.owner,
            runs_here=Other.REPLICA not in self._served_by,
        )

    @property
    def has_completed(self) -> bool:
        """True if the link has done all that its definition asks for, and has ended."""
        return self.state.completed and self.state.phase is Phase.IDLE

    @property
    def is_at_rest(self) -> bool:
        """True if the link holds no connection, and none is being opened or closed."""
        return self.state.phase in {Phase.IDLE, Phase.WAITING, Phase.GONE}

    @property
    def _backlog(self) -> int | None:
        if self._removing is not None:
            return self._removing.messages
        if self._idle_backlog is not None:
            return self._idle_backlog.messages
        if self._session.current is not None:
            seen = self._session.current.backlog
            return None if seen == 0 and self._is_unread else seen
        return None

    @property
    def _may_have_more(self) -> bool:
        return self._is_unread and self._flow is not None and (self._backlog or 0) <= self._flow.prefetch

    @property
    def _is_unread(self) -> bool:
        """True if messages that the source has sent may be counted nowhere: while the link is blocked little is
        read."""
        return bool(self.state.blocked) and not (self._flow is not None and self._flow.counts_all)

    @property
    def source(self) -> End:
        """The end that the link's messages come from."""
        return self.ends.source

    @property
    def local(self) -> Shared | None:
        """The connection to the downstream, where there is one."""
        return self._session.local

    @property
    def _flow(self) -> Flow | None:
        return self._session.flow

    @property
    def in_flight(self) -> int:
        return self._flow.in_flight if self._flow else 0

    def waits(self, now: float) -> float:
        """Seconds that the oldest message has waited for its confirm; 0 if none waits."""
        oldest = self._flow.oldest_unconfirmed if self._flow else None
        return 0.0 if oldest is None else now - oldest

    @property
    def _refused_for(self) -> float:
        """Seconds that the oldest message refused by the destination has waited; 0 if there is none."""
        oldest = self._flow.oldest_refused if self._flow else None
        return 0.0 if oldest is None else self._loop.time() - oldest

    def take_notes(self) -> None:
        self._take_note(self._runnable.notes)

    def _take_note(self, note: str) -> None:
        """Set the note on a link that works nevertheless, and log one that is new."""
        if note and note != self.note:
            log.warning("link noted", link=self.link.id, vhost=self.link.vhost, name=self.link.name, note=note)
        self.note = note

    # What its upstream counts

    @property
    def upstream_queue(self) -> tuple[CountedVhost, str] | None:
        """The vhost and the queue in which the upstream's HTTP API counts the link's messages; None if there is nothing
        to look at now."""
        link = self.link
        if not link.counted_by or self._served_by or not self.state.started or self.state.unwanted is not None:
            return None
        vhost = (self._runnable.uri or link.uris[0]).vhost(link.vhost)
        queue = self._runnable.waits_in(vhost)
        return None if queue is None else (CountedVhost(link.counted_by, vhost, link.upstream), queue)

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

    # What is done every second

    def tick(self, now: float) -> bool:
        """Look after the link; True if anything moved since the last time, or is in flight."""
        session, flow, counts = self._session.current, self._flow, self.counts
        if session is not None and not self.state.blocked and self.state.stalled is None and session.is_quiet(now):
            return False
        seen: tuple[object, ...] = ()
        if session is not None and flow is not None and self.state.phase is Phase.OPEN:
            self._judge(flow, session.tick(now, is_blocked=bool(self.state.blocked)))
            self._log_trouble(flow.trouble)
            self._log_losses()
            self._share_again(flow, now)
            lost = sum(counts.dropped.values()), sum(counts.quarantined.values()), counts.returned
            notes = self.note, flow.trouble, flow.idle, flow.limited_by
            seen = (
                counts.forwarded, counts.bytes, *lost, session.backlog, self._runnable.bound, flow.last_probe, *notes
            )  # fmt: skip
        if self._removing is not None:
            seen = (self._removing.looks, self._removing.messages)
        elif self._idle_backlog is not None:
            seen = ("idle", self._idle_backlog.messages)
        has_moved = seen != self._seen or self.in_flight > 0
        self._seen = seen
        return has_moved

    def _judge(self, flow: Flow, waited: float) -> None:
        is_due, is_stalled = waited >= self._brokers.stall_after, self.state.stalled is not None
        if is_due and not is_stalled:
            self.send(lifecycle.Stalled(_why_stalled(flow, waited), flow.held_at))
        elif flow.unproved and not is_stalled:
            self.send(lifecycle.Stalled(flow.unproved, flow.unproved_by))
        elif is_stalled and not is_due and not flow.unproved:
            self.send(Signal.PROGRESSED)

    def _log_trouble(self, trouble: str) -> None:
        """Log once when messages begin not to go through; their number is shown, and not logged each time."""
        if trouble and not self._is_troubled:
            link = self.link
            log.warning("messages held", link=link.id, vhost=link.vhost, name=link.name, reason=trouble)
        self._is_troubled = bool(trouble)

    def _log_losses(self) -> None:
        """Log once when messages begin to lose something by being converted."""
        for reason in list(self.counts.converted_with_loss)[self._losses_logged :]:
            self._losses_logged += 1
            link = self.link
            log.warning("converted with loss", link=link.id, vhost=link.vhost, name=link.name, lost=reason)

    def _share_again(self, flow: Flow, now: float) -> None:
        """Restart a link that was suspected for long enough: it shares connections with the others again."""
        if flow.is_watched and not self._runnable.is_suspected(now):
            log.info("link shares connections again", link=self.link.id, vhost=self.link.vhost, name=self.link.name)
            self.send(Signal.RESTART)

    def dedicate_connections(self) -> None:
        self._session.dedicate_connections()

    # What happens to it

    def send(self, event: Event) -> None:
        if event is Signal.RESTART:
            self._runnable.note_restart()
        before = self.state
        self.state, effects = lifecycle.step(before, event)
        for effect in effects:
            self._execute(effect)
        if self.state != before:
            self._follow_backlog()
            self._on_change(self, before)

    def start(self) -> None:
        if not self.state.started:
            self.send(Signal.START)

    def unwant(self) -> None:
        """Note that no definition asks for the link any more; what it built upstream is removed later."""
        if self.state.unwanted is None:
            self._built_under = self._brokers.cluster
            self.send(lifecycle.Unwanted(self._loop.time()))

    @property
    def is_unwanted(self) -> bool:
        return self.state.unwanted is not None

    @property
    def may_be_removed(self) -> bool:
        """True if neither the plugin nor another consumer serves the link. Where agents share links, a consumer doesn't
        count: one of them may have died, and its consumer may be what serves the link still."""
        if Other.PLUGIN in self._served_by:
            return False
        return Other.CONSUMER not in self._served_by or self._brokers.is_shared

    def want(self) -> None:
        """Note that a definition asks for the link again: it comes back with what it had."""
        if self.state.unwanted is not None:
            self.send(Signal.WANTED_AGAIN)

    def redefine(self, link: Link) -> None:
        """Set the changed definition: the link starts again, its queue stays. One that has done all that it was defined
        for starts again only for something else."""
        is_done = self.state.completed and asks_the_same(self.link, link)
        self.link = link
        self._make_runnable_again()
        self._follow_backlog_no_more()  # its queue may be another one now
        self._follow_backlog()
        if not is_done:
            self.send(Signal.RESTART)

    def renew(self, link: Link, ends: Ends) -> None:
        """Set a definition with other passwords and nothing else, and its `ends`: an open session goes on, and the next
        one uses them."""
        if self.state.phase is not Phase.OPEN:
            self.redefine(link)
            return
        self.link, self.ends, self._is_renewed = link, ends, True

    def follow_limit(self) -> None:
        """Apply the rate limit of the definition, also to messages that flow."""
        limit = self._runnable.rate_limit = self.link.settings.rate_limit
        if self._flow is not None:
            self._flow.limit(limit)

    def rebind(self, bindings: frozenset[Binding]) -> None:
        self._runnable.bindings = bindings
        if self._session.current is not None:
            self._session.current.follow()

    def note_completed(self) -> None:
        """Note that the link has done what it is defined for, here or elsewhere. That nothing stores this is no reason
        to do it again: what is stored may be lost, and only an operator or another definition asks for that."""
        self.send(lifecycle.Completed(earlier=True))

    def _make_runnable_again(self) -> None:
        self._account = self._account.interrupted()
        former, self._runnable = self._runnable, self._made_runnable()
        self._runnable.inherit(former)
        self._runnable.bindings = former.bindings
        self.ends, self._is_renewed = self._runnable.ends, False

    def _made_runnable(self) -> RunnableLink[Any]:
        return self._kinds.of(self.link).runnable(self.link, self.counts, self.take_notes)

    # Who else serves it

    def served_by(self, other: Other, reason: str | None) -> None:
        """Note that somebody else serves the link, or, without a reason, does so no more; it waits for the last of
        them."""
        self._stand_by(self._served_by.ends(other) if reason is None else self._served_by.begins(other, reason))

    def run_elsewhere(self, verdict: Elsewhere) -> None:
        """Note that another agent of the group runs the link, and stores whether it is paused."""
        event = self._served_by.runs_elsewhere(verdict)
        self._stand_by(event)
        if event is not None and verdict.owner is not None:  # that agent remembers it
            self.has_recalled = False
            self.send(Signal.RESUME)

    def run_here(self) -> None:
        """Note that no other agent of the group runs the link."""
        self._stand_by(self._served_by.runs_here())

    def waits_for(self, other: Other) -> bool:
        return other in self._served_by

    def _stand_by(self, event: Event | None) -> None:
        if isinstance(event, lifecycle.StandAside):
            self._account = self._account.interrupted()
            self._was_served = True
        if event is not None:
            self.send(event)

    def stand_by_for_consumer(self, error: ServedElsewhereError) -> None:
        self.served_by(Other.CONSUMER, str(error))
        if self._turn is not None:
            self._turn.cancel()
        queue = error.queue  # the error would keep the session that it came from in memory
        self._turn = self._keep(lambda: self._await_turn(queue), "await turn")

    async def _await_turn(self, queue: str) -> None:
        """Check, ever less often, whether the queue has lost its consumer; that of a lost connection soon goes."""
        attempt = 1
        while Other.CONSUMER in self._served_by and not self.state.is_stopped:
            attempt += 1
            upper = LOOK_SOON if attempt < SOON else LOOK_AGAIN
            await asyncio.sleep(waits.delay(attempt, upper, random.random()))
            try:
                is_free = await self._runnable.is_free(queue)
            except BrokerError:
                is_free = True  # opening the link will show what is wrong
            if is_free:
                self.served_by(Other.CONSUMER, None)

    # What waits for it while it has no session

    def _follow_backlog(self) -> None:
        """Read the depth of the queue while the link is paused, or only the downstream fails."""
        is_due = self._is_paused or self._lacks_downstream
        if is_due and self._idle_backlog is None:
            source = self._kinds.of(self.link).ends(self.link).source
            idle = self._idle_backlog = IdleBacklog(self._brokers, source, self._runnable.waits_in)
            self._idle_task = self._keep(idle.run, "look at the queue of a link without a session")
        elif not is_due:
            self._follow_backlog_no_more()

    @property
    def _is_paused(self) -> bool:
        return self.state.status is lifecycle.Status.PAUSED and self.state.phase is Phase.IDLE

    @property
    def _lacks_downstream(self) -> bool:
        """True if the link is stopped because the downstream failed, also while it tries again and gives up: the result
        isn't known before. When a session closes, its messages go back to the queue first."""
        broken, phase = self.state.broken, self.state.phase
        is_between = phase in {Phase.WAITING, Phase.OPENING} or (
            phase is Phase.CLOSING and self._idle_backlog is not None
        )
        return is_between and self.state.wants_to_run and broken is not None and broken.failure.side is Side.DOWNSTREAM

    def _follow_backlog_no_more(self) -> None:
        self._idle_backlog = None
        if self._idle_task is not None:
            self._idle_task.cancel()
            self._idle_task = None

    # What the lifecycle asks for

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Do.OPEN:
                self._open()
            case lifecycle.Close(settle):
                self._session.close(settle=settle)
            case lifecycle.Wait(attempt, slow):
                self._wait(attempt, slow=slow)
            case Do.CANCEL_WAIT:
                if self._timer is not None:
                    self._timer.cancel()
            case Do.HOLD_READING:
                self._session.hold_reading()
            case Do.RELEASE_READING:
                self._session.release_reading()
            case Do.FINISH:
                self._finish()
            case _:
                self._execute_removal(effect)

    def _open(self) -> None:
        if self._was_served and self.link.problem is None:
            self._runnable.forget_after_other()
            self._was_served = False
        self._session.open(self._runnable)

    def _wait(self, attempt: int, *, slow: bool) -> None:
        upper, chance = self.link.settings.reconnect_delay, random.random()
        delay = waits.slow_delay(upper, chance) if slow else waits.delay(attempt, upper, chance)
        self._timer = self._loop.call_later(delay, self.send, Signal.RETRY_DUE)

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)
        self._tasks.cancel()

    def note_closed(self) -> None:
        if self._is_renewed:
            self._make_runnable_again()
        self.send(Signal.CLOSED)

    def begin(self, work: Coroutine[Any, Any, None], doing: str, *, owes: Event | None = None) -> asyncio.Task[None]:
        """Run work for the link. `owes` is the event that the lifecycle waits for, whatever comes between: it is sent
        after an unexpected error, or without it a `Failed`."""
        return self._tasks.once(
            f"link: {doing}",
            work,
            # An unexpected error must not leave a link that neither runs nor shows why.
            on_error=lambda error: self.send(owes or lifecycle.Failed(f"unexpected error: {type(error).__name__}")),
            link=self.link.id,
        )

    def _keep(self, work: Callable[[], Coroutine[Any, Any, None]], doing: str) -> asyncio.Task[None]:
        """Keep work running whose result no event to the lifecycle could replace: after an unexpected error it is tried
        again."""
        return self._tasks.keep(f"link: {doing}", work, link=self.link.id)

    # Its removal

    def _execute_removal(self, effect: Effect) -> None:
        self._removing = None
        cleanup = self._runnable.cleanup
        match effect:
            case lifecycle.AwaitRemoval(since):
                removing = None if cleanup is None else cleanup.removing(cluster=self._built_under, since=since)
                self._removing = removing
                self._removal_wait = self._keep(lambda: self._await_removal(removing), "wait for the removal")
            case Do.CANCEL_REMOVAL_WAIT:
                if self._removal_wait is not None:
                    self._removal_wait.cancel()
            case lifecycle.CleanUp(messages):
                self.begin(self._clean_up(messages=messages), "clean up", owes=Signal.CLEANED_UP)

    async def _await_removal(self, removing: Removing | None) -> None:
        self.send(lifecycle.RemovalDue(messages=removing is not None and await removing.run()))

    async def _clean_up(self, *, messages: bool) -> None:
        self.has_removed, error = False, None
        async with self._brokers.changing(self.ends.source, self.link.vhost):
            if (cleanup := self._runnable.cleanup) is not None:
                error = await cleanup.remove(cluster=self._built_under, messages=messages, still=self._is_to_go)
        if isinstance(error, KeptError) or (isinstance(error, InDoubtError) and not messages):
            await asyncio.sleep(FILLED)
            self.send(Signal.KEPT)
            return
        self.has_removed = error is None
        if error is not None:
            self._take_note(f"what exists upstream could not be removed: {error}")
        self.send(Signal.CLEANED_UP)

    def _is_to_go(self) -> bool:
        return self.state.unwanted is not None and not self.state.is_stopped


def _why_stalled(flow: Flow, waited: float) -> str:
    """The reason of a stall. The downstream owes nothing where nothing is on the way to it."""
    if flow.trouble and not flow.in_flight:
        return flow.trouble
    late = f"messages wait, and the downstream has confirmed none for {waited:.0f} s"
    return f"{late}; {flow.trouble}" if flow.trouble else late
