"""Agents in the simulated world: the supervisor and its watcher, as `run` starts them, in a process of their own."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from agent.amqp.broker_events import DEFINITION_EVENTS
from agent.core.links.lifecycle import LinkState
from agent.definitions.sources.load import Configuration, load_configuration
from agent.downstream.watch import ReloadCause, Watcher
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board, OnTransition
from agent.tasks import GuardedTasks
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Network

PATIENCE = 2.0
WAKES_FOR = 1.0


@lru_cache(maxsize=256)
def configuration_of(text: str) -> Configuration:
    """Files are read before the world begins, and once."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "agent.yaml"
        path.write_text(text)
        return load_configuration(str(path), environment={})


class WatchedBoard(Board):
    """Shows every step of a link's lifecycle."""

    on_change: Callable[[LinkState, LinkState], None] = staticmethod(lambda before, after: None)

    def changed(self, link_id: str, state: LinkState) -> None:
        if link_id in self:
            self.on_change(self[link_id].state, state)
        super().changed(link_id, state)


class Agent:
    """One process, and another after it was started again."""

    def __init__(
        self, name: str, text: str, loop: SimulatedLoop, network: Network, on_transition: OnTransition
    ) -> None:
        self.name = name
        self.text = text
        self.process = Process(name)
        self._loop = loop
        self._network = network
        self._on_transition = on_transition
        self._watcher: Watcher | None = None
        self._stopping: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self.board: Board | None = None
        self.supervisor: Supervisor | None = None
        self.on_change: Callable[[LinkState, LinkState], None] = lambda before, after: None
        self._was_alone = False  # when it last stood still
        self._woke_at = 0.0

    def runs(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def goes_on_alone(self) -> bool:
        """It lost its lease before it knew of any other agent, and goes on with what it held; or it stood still alone,
        and has yet to hear of others: see the limits in docs/replicas.md. Links of exchanges are alone even so, as
        their consumers are exclusive."""
        if self.supervisor is None:
            return False
        is_waking = self._was_alone and (self.process.is_frozen or self._loop.time() - self._woke_at < WAKES_FOR)
        return is_waking or bool(self.supervisor._runners._replica._sharing._kept)

    def start(self) -> None:
        self.process, self._was_alone = Process(self.name), False
        configuration_of(self.text)
        self._task = self._loop.start(self.process, self._run())

    def define(self, text: str) -> None:
        """As SIGHUP after the file has changed."""
        self.text = text
        if self._watcher is not None:
            self._network.call(self.process, self._watcher.notify, ReloadCause.HANGUP)

    def kill(self) -> None:
        """As SIGKILL does: nothing is said to anybody."""
        self._network.sever(self.process)
        self._loop.kill(self.process)
        self._task = None

    def freeze(self) -> None:
        self._was_alone = self.supervisor is not None and self.supervisor._runners._replica._sharing.is_alone
        self._loop.freeze(self.process)

    def thaw(self) -> None:
        self._woke_at = self._loop.time()
        if not self.process.is_dead:
            self._loop.thaw(self.process)

    def ask_to_stop(self) -> None:
        if self._stopping is not None:
            self._network.call(self.process, self._stopping.set)

    def act(self, action: Callable[[Supervisor], None]) -> None:
        """What an operator asks over HTTP."""
        if self.supervisor is not None and self.runs():
            self._network.call(self.process, action, self.supervisor)

    async def stopped(self) -> None:
        self.ask_to_stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        stopping = self._stopping = asyncio.Event()
        board = self.board = WatchedBoard(time.time, owner=self.name, monotonic=time.monotonic)
        board.on_transition.append(self._on_transition)
        board.on_change = self.on_change
        supervisor = self.supervisor = Supervisor(lambda: configuration_of(self.text), board)
        settings = supervisor.configuration.settings.agent
        board.owner, board.group = settings.name or board.owner, settings.group or ""
        is_read = bool(supervisor.configuration.settings.downstream.management)
        watcher = self._watcher = Watcher(
            supervisor.reload,
            on_error=supervisor.report,
            events=(lambda: supervisor.listener.events(DEFINITION_EVENTS)) if is_read else None,
            clock=self._loop.time,
        )
        supervisor.has_unread = lambda link: watcher.has_unread(link.vhost, link.name)
        tasks = GuardedTasks(board.errors)
        tasks.keep("watch", watcher.run)
        await stopping.wait()
        await tasks.end(PATIENCE)
        await supervisor.stop()
