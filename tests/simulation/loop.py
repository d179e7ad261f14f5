"""The event loop of a simulated world: time passes when nobody has anything to do, and processes can be stopped."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

MOST_STEPS = 3_000_000  # callbacks of one run: more is a loop without end


class Deadlock(Exception):  # noqa: N818 - it is what it is
    """Everybody waits for everybody else."""


class Process:
    """Whoever runs in a process of their own: an agent. A frozen one runs nothing, and later all that was due."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.held: list[asyncio.Handle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}


RUNNING: ContextVar[Process | None] = ContextVar("RUNNING", default=None)


class Connector(Protocol):
    """A network that opens streams in memory."""

    async def connect(self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Any: ...


class _Selector:
    """Nothing outside of the loop wakes it."""

    def get_map(self) -> dict[int, Any]:
        return {}

    def close(self) -> None: ...


class SimulatedLoop(asyncio.BaseEventLoop):
    """Without sockets, signals and threads. `network` opens connections."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._selector = _Selector()
        self._now = 0.0
        self._chance = chance
        self._steps = 0
        self.processes: list[Process] = []
        self.network: Connector | None = None
        self.set_task_factory(_make_task)
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]

    def time(self) -> float:
        return self._now

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def _run_once(self) -> None:
        if not self._ready:
            self._pass_time()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(RUNNING)  # type: ignore[attr-defined]
            if process is not None and process.is_frozen:
                process.held.append(handle)
                continue
            self._steps += 1
            handle._run()
        if self._steps > MOST_STEPS:
            raise Deadlock("the run doesn't end")

    def _pass_time(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._drop()
        if not self._scheduled:
            raise Deadlock("everybody waits for everybody else")
        self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        due = []
        while self._scheduled and self._scheduled[0]._when <= self._now:  # type: ignore[attr-defined]
            handle = self._drop()
            if not handle._cancelled:
                due.append(handle)
        self._ready.extend(due)

    def _drop(self) -> asyncio.TimerHandle:
        handle = heapq.heappop(self._scheduled)
        handle._scheduled = False  # type: ignore[attr-defined]
        return handle

    def freeze(self, process: Process) -> None:
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """Runs all that was due meanwhile, in the order in which it was."""
        process.is_frozen = False
        held, process.held = process.held, []
        self._ready.extend(held)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """What an agent does in a thread is done at once, and is ready in the loop's next turn."""
        done: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            self.call_soon(_settle, done, None, error)
        else:
            self.call_soon(_settle, done, result, None)
        return done

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: str, port: int, **options: Any
    ) -> tuple[Any, Any]:
        assert self.network is not None and not options, options
        connected: tuple[Any, Any] = await self.network.connect(protocol_factory, host, port)
        return connected

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the loop's
        """There is none."""

    def start(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs the work, and all that it begins, in that process."""
        self.processes.append(process)
        context = copy_context()
        context.run(RUNNING.set, process)
        return context.run(self.create_task, work)

    def kill(self, process: Process) -> None:
        """Ends all that runs in the process. Its connections have to be severed before."""
        self.thaw(process)
        process.is_dead = True
        for task in tuple(process.tasks):
            task.cancel()


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    process = RUNNING.get() if context is None else context.get(RUNNING)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda ended: process.tasks.pop(ended, None))
    return task


def _end_all(loop: SimulatedLoop) -> None:
    """Where a run ends in the middle of something."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    for process in loop.processes:
        loop.thaw(process)
    with suppress(Deadlock, TimeoutError):
        loop.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 600))


def run(work: Callable[[SimulatedLoop], Coroutine[Any, Any, T]], chance: Random) -> T:
    loop = SimulatedLoop(chance)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work(loop))
    finally:
        _end_all(loop)
        asyncio.set_event_loop(None)
        loop.close()
