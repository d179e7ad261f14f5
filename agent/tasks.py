"""Background tasks that can't die silently: an error that nobody foresaw is logged, counted and shown.

Why: docs/decisions/0046-guarded-tasks.md
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import structlog

from agent.errors import AgentError

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
STEADY: Final = 60.0  # a task that ran for so long starts again after the first pause
SHOWN_FOR: Final = 600.0  # longer than the longest pause: an error that comes again is shown all the time
CALLBACKS: Final = "callbacks of the event loop"

log = structlog.get_logger()


class UnexpectedErrors:
    """The errors that nobody foresaw, by the task in which they happened.

    Names of tasks are few and fixed: they are a metric's label. What a task is about, such as a link, is only logged.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.counts: dict[str, int] = {}
        self._latest: dict[str, tuple[str, float]] = {}  # the kind of error, and when it happened

    def expect(self, task: str) -> None:
        """Counts 0 from now on: a rate is only known of what was counted before."""
        self.counts.setdefault(task, 0)

    def report(self, task: str, error: BaseException, **about: object) -> None:
        kind = type(error).__name__
        self.counts[task] = self.counts.get(task, 0) + 1
        self._latest[task] = kind, self.clock()
        with suppress(Exception):  # a log that can't be written must not end the task that reports
            log.error("unexpected error", task=task, error=kind, **about, exc_info=error)

    @contextmanager
    def catching(self, task: str, **about: object) -> Iterator[None]:
        """For one of many rounds of a task: whatever is raised in it is reported, and the task goes on."""
        self.expect(task)
        try:
            yield
        except asyncio.CancelledError as error:
            if _is_asked_to_end():
                raise
            self.report(task, error, **about)
        except Exception as error:  # noqa: BLE001 - a task's edge
            self.report(task, error, **about)

    def of_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler: for errors in callbacks and in tasks whose result nobody has asked for."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, (OSError, AgentError)):
            self.report(CALLBACKS, error, message=context.get("message"))
        else:
            loop.default_exception_handler(context)

    @property
    def problems(self) -> tuple[str, ...]:
        """The recent ones, as an operator is shown them; an error's text may hold anything, so only the log has it."""
        now = self.clock()
        return tuple(
            f"unexpected error in the task {task!r} ({kind}), {self.counts[task]} since the agent started: "
            "the log holds the details; report it"
            for task, (kind, at) in self._latest.items()
            if now - at <= SHOWN_FOR
        )


class GuardedTasks:
    """The background tasks of one owner. Each is named, and none ends by an unforeseen error without a report."""

    def __init__(self, errors: UnexpectedErrors, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.errors = errors
        self._sleep = sleep
        self._running: set[asyncio.Task[None]] = set()

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]], **about: object) -> asyncio.Task[None]:
        """Runs until it returns or is cancelled. After an unforeseen error `work` is called again, after a pause that
        grows while it keeps failing."""
        return self._start(name, self._keep(name, work, about))

    def once(
        self,
        name: str,
        work: Coroutine[Any, Any, None],
        *,
        on_error: Callable[[BaseException], None] | None = None,
        **about: object,
    ) -> asyncio.Task[None]:
        """Runs once; `on_error` is called after an unforeseen error was reported."""

        def ended(task: asyncio.Task[None]) -> None:
            error = _unforeseen_end(task)
            if error is not None:
                self.errors.report(name, error, **about)
                if on_error is not None:
                    on_error(error)

        task = self._start(name, work)
        task.add_done_callback(ended)
        return task

    def cancel(self) -> None:
        """All of them but the one that calls."""
        for task in self._running - {asyncio.current_task()}:
            task.cancel()

    async def end(self, patience: float) -> None:
        """Cancels all of them and waits for their end, but no longer than `patience`."""
        self.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=patience)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.errors.expect(name)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._running.discard)
        return task

    async def _keep(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], about: Mapping[str, object]
    ) -> None:
        pause = FIRST_PAUSE
        while True:
            begun, has_returned = self.errors.clock(), False
            with self.errors.catching(name, **about):
                await work()
                has_returned = True
            if has_returned:
                return
            if self.errors.clock() - begun >= STEADY:
                pause = FIRST_PAUSE
            await self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


async def run_until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Runs parts of one task side by side until the first ends; the others are cancelled, and its error goes on."""
    tasks = [asyncio.ensure_future(work) for work in works]
    ended: set[asyncio.Future[None]] = set()
    first: asyncio.Future[None] | None = None
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        first = next((task for task in tasks if task in ended and _has_failed(task)), None)
        report_unforeseen(task for task in tasks if task is not first)
    if first is not None:
        first.result()


def report_unforeseen(ended: Iterable[asyncio.Future[Any]], *, but: BaseException | None = None) -> None:
    """Reports errors that go no further, since another one does (`but`), to the loop's exception handler. Those of
    brokers and peers are foreseen."""
    for each in ended:
        error = None if each.cancelled() else each.exception()
        if error is not None and error is not but and not isinstance(error, AgentError):
            message = "a part of a task failed as its other parts ended"
            each.get_loop().call_exception_handler({"message": message, "exception": error, "future": each})


def retrieve(ended: asyncio.Future[Any]) -> None:
    """Take the error, which is shown elsewhere, where nobody may wait for it: asyncio doesn't log it then."""
    if not ended.cancelled():
        ended.exception()


def _has_failed(task: asyncio.Future[None]) -> bool:
    return task.cancelled() or task.exception() is not None


def _is_asked_to_end() -> bool:
    """True if somebody has cancelled this task; what it waited for may have been cancelled instead."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _unforeseen_end(task: asyncio.Task[None]) -> BaseException | None:
    if not task.cancelled():
        return task.exception()
    return None if task.cancelling() else asyncio.CancelledError("what the task waited for was cancelled")


T1 = TypeVar("T1")
T2 = TypeVar("T2")


async def gather_both(first: Awaitable[T1], second: Awaitable[T2]) -> tuple[T1, T2]:
    """The results of the two; where one fails the other is ended before the error goes on."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await asyncio.gather(*tasks)
    finally:
        pending = [task for task in tasks if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        report_unforeseen(tasks, but=sys.exception())
