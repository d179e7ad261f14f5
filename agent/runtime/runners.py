"""The links that run and those that end: nothing else starts a link or lets one go."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from typing import Final

from agent.amqp.wire.ends import Permit
from agent.core.addresses.uri import AmqpUri
from agent.core.links.lifecycle import LinkState, Phase, Signal
from agent.core.links.reasons import word_of
from agent.core.links.reconcile import SharedQueues
from agent.core.links.served_by import Other
from agent.core.model import Binding, Link
from agent.core.replicas.sharing import Elsewhere
from agent.core.replicas.slots import SLOTS
from agent.downstream.bindings import Federated, KnownBindings, exchanges_of
from agent.errors import BrokerError, TransientError
from agent.links.brokers import Brokers
from agent.links.registry import Kinds
from agent.runtime.link_log import LinkLog
from agent.runtime.operator_requests import OperatorRequests
from agent.runtime.replicas.replica import Replica
from agent.runtime.runner import LinkRunner
from agent.slices import Gradually, in_slices
from agent.status.board import Board
from agent.tasks import GuardedTasks

STOP_PATIENCE: Final = 15.0
LEAVE_PATIENCE: Final = 2.0
STARTED_AT_ONCE: Final = 50
REOPEN_EVERY: Final = 0.05
GIVE_UP_AFTER: Final = 2.0
GIVE_UP_AGAIN: Final = 10.0
LEASES: Final = "share links with other agents"
END_LINKS: Final = "end links that others may run"
_NO_CONNECTION: Final = frozenset({"unreachable", "lost", "heartbeat"})
NO_LEASE: Final = "waits until it is known which agent of the group runs it"
NO_BINDINGS: Final = "waits until the bindings of its exchange can be read: see the agent's problems"


class Runners:
    """One runner for each link that was wanted last, or is being removed."""

    def __init__(self, board: Board, bindings: KnownBindings, uris: Callable[[], Sequence[AmqpUri]]) -> None:
        self._board = board
        self._brokers: Brokers | None = None
        self._lease_tasks = GuardedTasks(board.errors)  # they end after all links
        self.is_leasing = False
        self.permit = Permit()
        self._replica = Replica(uris, self._lease_tasks, self.permit, self)
        self._bindings = bindings
        self._log = LinkLog(board.clock)
        self._tasks = GuardedTasks(board.errors)
        self._runners: dict[str, LinkRunner] = {}
        self._of_exchange: dict[Federated, set[LinkRunner]] = defaultdict(set)  # those that copy its bindings
        self._leaving: set[LinkRunner] = set()
        self._is_stopping = False
        self._goes_on_soon = False
        self.commands = OperatorRequests(self._runners, self._replica, board)
        self._failing: set[LinkRunner] = set()  # that are looked at again
        self.start_ready = Gradually(self._start_ready)
        self._share = Gradually(self._place_again)
        self.on_completed: Callable[[Link], object] | None = None  # a link has done all that its definition asks for
        self.on_settled: Callable[[], object] | None = None  # and its connections have ended

    def __iter__(self) -> Iterator[LinkRunner]:
        return iter(tuple(self._runners.values()))

    @property
    def by_id(self) -> Mapping[str, LinkRunner]:
        return self._runners

    @property
    def followed(self) -> Set[Federated]:
        """The downstream exchanges of links."""
        return self._of_exchange.keys()

    def get_or_make(self, link: Link, kinds: Kinds) -> LinkRunner:
        if self._brokers is None:
            self._brokers = kinds.brokers
            self._brokers.is_shared = self._replica.has_peers
        runner = self._runners.get(link.id)
        if runner is None:
            runner = self._runners[link.id] = LinkRunner(link, kinds, on_change=self._changed)
            for exchange in exchanges_of((link,)):
                self._of_exchange[exchange].add(runner)
            runner.rebind(self._bindings.of((link.vhost, link.name)) or frozenset())
        return runner

    def rebind(self, in_force: Mapping[Federated, frozenset[Binding]]) -> None:
        for exchange in in_force.keys() & self._of_exchange.keys():
            for runner in self._of_exchange[exchange]:
                runner.rebind(in_force[exchange])

    def let_go(self, runner: LinkRunner) -> None:
        """Ends the link and leaves what it built upstream."""
        self._drop(runner)
        self.commands.forget(runner.link.id, keeps_pause=True)
        self._leaving.add(runner)
        runner.send(Signal.STOP)
        self._tasks.once("wait for the end of a link", self._await_end(runner), link=runner.link.id)

    def _drop(self, runner: LinkRunner) -> None:
        del self._runners[runner.link.id]
        for exchange in exchanges_of((runner.link,)):
            self._of_exchange[exchange].discard(runner)
            if not self._of_exchange[exchange]:
                del self._of_exchange[exchange]

    async def _await_end(self, runner: LinkRunner) -> None:
        await asyncio.shield(runner.finished)
        self._leaving.discard(runner)
        if runner.link.id not in self._runners:
            self._forget(runner.link.id)
        self._go_on_soon()

    def _forget(self, link_id: str) -> None:
        self._board.gone(link_id)
        self._log.gone(link_id)

    def _go_on_soon(self) -> None:
        """Start what is ready after the end of a link: once, however many end together."""
        if not self._goes_on_soon:
            self._goes_on_soon = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on_soon = False
        self._follow()
        self.start_ready()

    def _follow(self) -> None:
        self._replica.follow(runner.link for runner in self)

    def _start_ready(self) -> Iterator[None]:
        """Starts new links; none over a queue that is being removed, nor one whose predecessor hasn't ended yet, nor
        one whose bindings could not be read so far: it would take those that exist upstream for superfluous."""
        new = [runner for runner in self if not runner.state.started]
        for begin in range(0, len(new), STARTED_AT_ONCE):
            leaving = {runner.link.id for runner in self._leaving}
            known = (*self, *self._leaving)
            removed = SharedQueues(runner.link for runner in known if runner.state.phase is Phase.CLEANING)
            for runner in new[begin : begin + STARTED_AT_ONCE]:
                is_known = self._runners.get(runner.link.id) is runner and not runner.state.started
                if is_known and runner.link.id not in leaving and not removed.have_that_of(runner.link):
                    self._start(runner)
            yield

    def _start(self, runner: LinkRunner) -> None:
        if self._is_stopping:
            return
        if not self._place(runner):
            runner.note = NO_LEASE
        elif runner.link.problem is None and self._lacks_bindings(runner.link):
            runner.note = NO_BINDINGS
        else:
            runner.note = ""
            runner.start()

    def share_with_others(self, *, prefers_quorum: bool = False) -> None:
        """Share links with the other agents of the group: this one doesn't run those that they run. Links that are no
        longer defined count, too: one of the agents has to remove what they built."""
        self._replica.join(self._board.group, self._board.owner)
        self._follow()
        if not self.is_leasing:
            self.is_leasing = True
            self._replica.prefers_quorum = prefers_quorum
            self._lease_tasks.keep(LEASES, self._replica.run)
            self._lease_tasks.keep(END_LINKS, self._replica.keep_deadline)

    def renew(self, former: Sequence[AmqpUri], now: Sequence[AmqpUri]) -> None:
        """Use the other passwords of the downstream."""
        self._replica.renew(dict(zip(former, now, strict=True)))

    def move(self) -> None:
        """Move to the other addresses of the downstream."""
        self._replica.move()

    def share(self, *, at_once: bool = False) -> None:
        """Decide again which links run here: other agents of the group may run others now. With `at_once` nothing
        happens in between."""
        self._share()
        if at_once:
            self._share.finish()

    def _place_again(self) -> Iterator[None]:
        for runner in self:
            if runner.state.started and self._runners.get(runner.link.id) is runner:
                self._place(runner)
            yield
        self.start_ready()

    def _place(self, runner: LinkRunner) -> bool:
        """Apply the verdict on where the link runs; False if there is none yet, and the link goes on as before."""
        verdict = self._replica.verdict(runner.link)
        if verdict is None:
            return False
        if isinstance(verdict, Elsewhere):
            runner.run_elsewhere(verdict)
            if verdict.owner is not None and runner.state.unwanted is None:
                self._board.acknowledge({runner.link.id: None})  # that agent remembers it
            if verdict.owner is not None:
                self.commands.pass_on(runner.link.id)
        else:
            self.commands.recall(runner)  # before it may open
            if runner.waits_for(Other.REPLICA) or not runner.state.started:
                runner.run_here()
        return True

    def recall(self, slot: int) -> None:
        for runner in self:
            if runner.slot == slot and not runner.waits_for(Other.REPLICA):
                self.commands.recall_changed(runner)

    def begin_sharing(self) -> None:
        """Connect running links again, so that brokers notice sooner if this agent is gone."""
        if self._brokers is not None and not self._brokers.is_shared:
            self._brokers.is_shared = True
            self._tasks.once("connect links again", self._reopen())

    def end_sharing(self) -> None:
        """Let connections that are opened from now on be silent for longer again."""
        if self._brokers is not None:
            self._brokers.is_shared = False

    def sever(self, why: BrokerError) -> None:
        if self._brokers is not None:
            self._brokers.sever(why)

    async def _reopen(self) -> None:
        """Restart links one after another: each takes a moment."""
        for runner in self:
            if runner.state.phase in {Phase.OPEN, Phase.OPENING}:
                runner.send(Signal.RESTART)
                await asyncio.sleep(REOPEN_EVERY)

    def slots_at_work(self) -> Container[int]:
        if (
            self._share.is_under_way and not self._is_stopping
        ):  # a link that waits for its next attempt may not know that it has to leave
            return range(SLOTS)
        return {runner.slot for runner in (*self, *self._leaving) if not runner.is_at_rest}

    def _lacks_bindings(self, link: Link) -> bool:
        return any(self._bindings.of(exchange) is None for exchange in exchanges_of((link,)))

    def _changed(self, runner: LinkRunner, before: LinkState) -> None:
        self._board.changed(runner.link.id, runner.state)
        self._log.changed(runner.link, before, runner.state)
        if _cannot_connect(runner.state) and runner not in self._failing:
            self._failing.add(runner)
            asyncio.get_running_loop().call_later(GIVE_UP_AFTER, self._give_up, runner)
        if runner.state.completed and not before.completed and self.on_completed is not None:
            self.on_completed(runner.link)
        if runner.has_completed and before.phase is Phase.CLOSING and self.on_settled is not None:
            self.on_settled()
        if before.phase is Phase.CLEANING and runner.state.phase is not Phase.CLEANING and not self._is_stopping:
            self._removed(runner)

    def _give_up(self, runner: LinkRunner) -> None:
        """Offer a link that can't connect to another agent of the group, which may reach what this one doesn't."""
        if _cannot_connect(runner.state) and self._runners.get(runner.link.id) is runner:
            self._replica.give_up(runner.link.id)
            asyncio.get_running_loop().call_later(GIVE_UP_AGAIN, self._give_up, runner)
        else:
            self._failing.discard(runner)

    def _removed(self, runner: LinkRunner) -> None:
        """Handle the end of a removal; unless it was called off, the link is over, too. Where something is left,
        another agent of the group tries in its turn: it may reach what this one doesn't."""
        link_id = runner.link.id
        if runner.finished.done() and self._runners.get(link_id) is runner:
            self.commands.forget(link_id, keeps_pause=False)
            self._drop(runner)
            self._forget(link_id)
            if runner.has_removed:
                self._replica.announce_removed(link_id)
        self._go_on_soon()

    def removed_by_another(self, link_id: str) -> None:
        """Let go of a link that another agent has removed. This agent kept it in case that the other died before."""
        runner = self._runners.get(link_id)
        if runner is not None and runner.state.unwanted is not None and runner.waits_for(Other.REPLICA):
            self.let_go(runner)

    def hold(self) -> None:
        """Starts no more links from now on."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Settles what is in flight and leaves everything upstream as it is."""
        self.hold()
        runners = [*self, *self._leaving]
        async for runner in in_slices(runners):
            runner.send(Signal.STOP)
        try:
            async with asyncio.timeout(STOP_PATIENCE):
                await asyncio.gather(self._replica.hand_over(), *(asyncio.shield(each.finished) for each in runners))
        except TimeoutError:
            self.sever(TransientError("the agent stops"))  # others take over now
        await self._lease_tasks.end(LEAVE_PATIENCE)


def _cannot_connect(state: LinkState) -> bool:
    return state.broken is not None and word_of(state.broken.failure) in _NO_CONNECTION
