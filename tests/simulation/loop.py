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
from weakref import WeakKeyDictionary

T = TypeVar("T")

MANY = 64  # tasks
MOST_STEPS = 3_000_000  # callbacks of one run: more is a loop without end


class Deadlock(Exception):  # noqa: N818 - it is what it is
    """Everybody waits for everybody else."""


RUNNING: ContextVar[Process | None] = ContextVar("RUNNING", default=None)


class Process:
    """Whoever runs in a process of their own: an agent. A frozen one runs nothing, and later all that was due."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.held: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.context = Context()
        """Of what its system calls it for."""
        self.context.run(RUNNING.set, self)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        self._tasks = [each for each in self._tasks if not each.done()]
        return self._tasks

    def began(self, task: asyncio.Task[Any]) -> None:
        """Those that have ended are dropped now and then: to be called for each of them would take more time."""
        self._tasks.append(task)
        if len(self._tasks) % MANY == 0:
            self._tasks = self.tasks


class Connector(Protocol):
    """A network that opens streams in memory: `reach` answers once the address does, or refuses."""

    async def reach(self, host: str, port: int) -> None: ...

    def open(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any: ...


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
        self._reached: WeakKeyDictionary[Any, tuple[str, int]] = WeakKeyDictionary()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._frozen = 0
        self.set_task_factory(_make_task)
        self._ready: deque[asyncio.Handle]

    def time(self) -> float:
        return self._now

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """What is due at the same time runs in the order in which it was called for."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _run_once(self) -> None:
        """Until the loop is stopped: to return after each turn would only take time."""
        ready = self._ready
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._pass_time()
            self._steps += len(ready)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled and not (self._frozen and self._holds(handle)):
                    handle._run()
            if self._steps > MOST_STEPS:
                raise Deadlock("the run doesn't end")

    def _holds(self, handle: asyncio.Handle) -> bool:
        process = handle._context.get(RUNNING)  # type: ignore[attr-defined]
        if process is None or not process.is_frozen:
            return False
        process.held.append(handle)
        return True

    def _pass_time(self) -> None:
        """To the next timer that nobody has cancelled."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("everybody waits for everybody else")
        now = self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])

    def freeze(self, process: Process) -> None:
        self._frozen += not process.is_frozen
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """Runs all that was due meanwhile, in the order in which it was."""
        self._frozen -= process.is_frozen
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
        self, protocol_factory: Any, host: str = "", port: int = 0, *, sock: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """`sock` has been connected before: aiohttp does it in two steps."""
        assert self.network is not None and not any(options.values()), options
        if sock is None:
            await self.network.reach(host, port)
        else:
            host, port = self._reached.pop(sock)
            sock.close()
        connected: tuple[Any, Any] = self.network.open(protocol_factory, host, port)
        return connected

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """The socket only stands for its address; nothing is sent by it."""
        assert self.network is not None
        await self.network.reach(*address)
        self._reached[sock] = address

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
        process.began(task)
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
