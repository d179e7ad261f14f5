"""The links that run and those that end: nothing else starts a link or lets one go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from agent.core.links import lifecycle
from agent.core.links.lifecycle import LinkState, Phase
from agent.core.model import Binding, Link, LinkKind
from agent.downstream.known_bindings import Federated, KnownBindings, exchanges_of
from agent.links.registry import Kinds, SharedQueues
from agent.runtime.link_log import LinkLog
from agent.runtime.runner import LinkRunner
from agent.status.board import Board
from agent.tasks import GuardedTasks

STOP_PATIENCE: Final = 15.0
NO_BINDINGS: Final = "waits until the bindings of its exchange can be read: see the agent's problems"

_ASKED: Final[Mapping[str, lifecycle.Event]] = {
    "restart": lifecycle.Restart(),
    "pause": lifecycle.Pause(),
    "resume": lifecycle.Resume(),
}


class Runners:
    """One runner for each link that was wanted last, or is being removed."""

    def __init__(self, board: Board, bindings: KnownBindings) -> None:
        self._board = board
        self._bindings = bindings
        self._log = LinkLog(board.clock)
        self._tasks = GuardedTasks(board.errors)
        self._runners: dict[str, LinkRunner] = {}
        self._leaving: set[LinkRunner] = set()
        self._is_stopping = False
        self.on_completed: Callable[[], object] | None = None  # a link has done all that its definition asks for

    def __iter__(self) -> Iterator[LinkRunner]:
        return iter(tuple(self._runners.values()))

    @property
    def by_id(self) -> Mapping[str, LinkRunner]:
        return self._runners

    @property
    def wanted(self) -> Iterable[LinkRunner]:
        return (runner for runner in self if runner.state.unwanted is None)

    @property
    def followed(self) -> frozenset[Federated]:
        """The downstream exchanges of wanted links."""
        return exchanges_of(each.link for each in self.wanted)

    def get_or_make(self, link: Link, kinds: Kinds) -> LinkRunner:
        runner = self._runners.get(link.id)
        if runner is None:
            runner = self._runners[link.id] = LinkRunner(link, kinds, on_change=self._changed)
            runner.rebind(self._bindings.of((link.vhost, link.name)) or frozenset())
        return runner

    def rebind(self, in_force: Mapping[Federated, frozenset[Binding]]) -> None:
        for runner in self:
            for source in exchanges_of((runner.link,)) & in_force.keys():
                runner.rebind(in_force[source])

    def let_go(self, runner: LinkRunner) -> None:
        """Ends the link and leaves what it built upstream."""
        del self._runners[runner.link.id]
        self._leaving.add(runner)
        runner.send(lifecycle.Stop())
        self._tasks.once("wait for the end of a link", self._await_end(runner), link=runner.link.id)

    async def _await_end(self, runner: LinkRunner) -> None:
        await runner.finished.wait()
        self._leaving.discard(runner)
        if runner.link.id not in self._runners:
            self._forget(runner.link.id)
        if any(not each.state.started for each in self._runners.values()):
            self.start_ready()

    def _forget(self, link_id: str) -> None:
        self._board.gone(link_id)
        self._log.gone(link_id)

    def start_ready(self) -> None:
        """Starts new links; none over a queue that is being removed, nor one whose predecessor hasn't ended yet, nor
        one whose bindings could not be read so far: it would take those that exist upstream for superfluous."""
        if self._is_stopping:
            return
        leaving = {runner.link.id for runner in self._leaving}
        known = (*self, *self._leaving)
        removed = SharedQueues(runner.link for runner in known if runner.state.phase is Phase.CLEANING)
        for runner in self:
            if runner.state.started or runner.link.id in leaving or removed.have_that_of(runner.link):
                continue
            if runner.link.problem is None and self._lacks_bindings(runner.link):
                runner.note = NO_BINDINGS
            else:
                runner.note = ""
                runner.start()

    def _lacks_bindings(self, link: Link) -> bool:
        """Only exchange links copy bindings."""
        return link.kind is LinkKind.EXCHANGE and self._bindings.of((link.vhost, link.name)) is None

    def _changed(self, runner: LinkRunner, before: LinkState) -> None:
        self._board.changed(runner.link.id, runner.state)
        self._log.changed(runner.link, before, runner.state)
        has_completed = runner.has_completed and before.phase is Phase.CLOSING
        if has_completed and self.on_completed is not None:
            self.on_completed()
        if before.phase is Phase.CLEANING and runner.state.phase is not Phase.CLEANING and not self._is_stopping:
            self._removed(runner)

    def _removed(self, runner: LinkRunner) -> None:
        """The removal is over; unless it was called off, so is the link."""
        link_id = runner.link.id
        if runner.finished.is_set() and self._runners.get(link_id) is runner:
            del self._runners[link_id]
            self._forget(link_id)
        self.start_ready()

    def act(self, link_id: str, action: str) -> None:
        """What an operator asks of a link."""
        runner = self._runners.get(link_id)
        if runner is not None:
            runner.send(_ASKED[action])

    def hold(self) -> None:
        """Starts no more links from now on."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Settles what is in flight and leaves everything upstream as it is."""
        self.hold()
        runners = [*self, *self._leaving]
        for runner in runners:
            runner.send(lifecycle.Stop())
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE):
                await asyncio.gather(*(runner.finished.wait() for runner in runners))
