"""Background tasks whose work fails in a way that nobody foresaw; time passes when a test says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import TransientError
from agent.tasks import (
    CALLBACKS,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    SHOWN_FOR,
    STEADY,
    GuardedTasks,
    UnexpectedErrors,
    gather_both,
    run_until_first,
)
from tests.unit.definitions.virtual_time import VirtualTime

TASK = "follow bindings"


class Work:
    """Fails as often as `failures` says, each time after `lasts` seconds; then it goes on."""

    def __init__(self, time: VirtualTime, *, failures: int, lasts: float = 0.0) -> None:
        self.begun: list[float] = []
        self._time = time
        self._failures = failures
        self._lasts = lasts

    async def __call__(self) -> None:
        self.begun.append(self._time.now)
        if len(self.begun) <= self._failures:
            if self._lasts:
                await self._time.sleep(self._lasts)
            raise ValueError("s3cret")
        await asyncio.Event().wait()

    @property
    def pauses(self) -> list[float]:
        return [after - before - self._lasts for before, after in zip(self.begun, self.begun[1:], strict=False)]


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def errors(time: VirtualTime) -> UnexpectedErrors:
    return UnexpectedErrors(time.clock)


@pytest.fixture
def tasks(time: VirtualTime, errors: UnexpectedErrors) -> GuardedTasks:
    return GuardedTasks(errors, sleep=time.sleep)


async def test_what_fails_starts_again_after_pauses_that_grow(time: VirtualTime, tasks: GuardedTasks) -> None:
    work = Work(time, failures=9)
    tasks.keep(TASK, work)
    await time.advance(1000)
    assert work.pauses == [FIRST_PAUSE, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    await tasks.end(1)


async def test_what_ran_for_long_starts_again_soon(time: VirtualTime, tasks: GuardedTasks) -> None:
    work = Work(time, failures=4, lasts=STEADY)
    tasks.keep(TASK, work)
    await time.advance(1000)
    assert work.pauses == [FIRST_PAUSE] * 4
    await tasks.end(1)


async def test_an_error_is_logged_counted_and_shown_while_it_is_recent(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks.keep(TASK, Work(time, failures=2))
    assert errors.counts == {TASK: 0}
    await time.advance(10)
    assert errors.counts == {TASK: 2}
    [problem] = errors.problems
    assert problem.startswith(f"unexpected error in the task {TASK!r} (ValueError), 2 since the agent started")
    assert "s3cret" not in problem
    logged = capsys.readouterr().out
    assert logged.count("unexpected error") == 2
    assert TASK in logged
    assert "Traceback" in logged
    await time.advance(SHOWN_FOR)
    assert errors.problems == ()
    assert errors.counts == {TASK: 2}
    await tasks.end(1)


async def test_an_error_that_comes_again_and_again_is_shown_all_the_time(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks
) -> None:
    tasks.keep(TASK, Work(time, failures=1000))
    for _ in range(3):
        await time.advance(SHOWN_FOR / 2)
        assert len(errors.problems) == 1
    await tasks.end(1)


async def test_work_that_returns_is_over(time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks) -> None:
    async def work() -> None:
        """Nothing is left to do."""

    task = tasks.keep(TASK, work)
    await time.advance(1)
    assert task.done()
    assert errors.counts == {TASK: 0}


async def test_a_cancellation_ends_a_task_and_is_no_error(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks
) -> None:
    kept, once = tasks.keep(TASK, Work(time, failures=0)), tasks.once("once", Work(time, failures=0)())
    await time.turn()
    await tasks.end(1)
    assert kept.cancelled()
    assert once.cancelled()
    assert errors.problems == ()


async def test_a_task_in_its_pause_ends_at_once(time: VirtualTime, tasks: GuardedTasks) -> None:
    kept = tasks.keep(TASK, Work(time, failures=5))
    await time.advance(2)
    await tasks.end(1)
    assert kept.cancelled()


async def test_what_is_cancelled_from_within_starts_again(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks
) -> None:
    """As where a task waits for a future that somebody else has cancelled: nobody has asked the task itself to end."""
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        awaited = asyncio.get_running_loop().create_future()
        if rounds == 1:
            awaited.cancel()
        await awaited

    tasks.keep(TASK, work)
    await time.advance(FIRST_PAUSE)
    assert rounds == 2
    assert errors.counts == {TASK: 1}
    await tasks.end(1)


async def test_an_errand_is_reported_and_not_begun_again(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks, capsys: pytest.CaptureFixture[str]
) -> None:
    work, told = Work(time, failures=1), list[BaseException]()
    tasks.once(TASK, work(), on_error=told.append, link="0000002a")
    await time.advance(1000)
    assert len(work.begun) == len(told) == errors.counts[TASK] == 1
    assert "0000002a" in capsys.readouterr().out


async def test_an_errand_that_is_cancelled_from_within_is_reported(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks
) -> None:
    async def work() -> None:
        awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    tasks.once(TASK, work())
    await time.turn()
    assert errors.counts == {TASK: 1}


async def test_a_round_that_fails_is_reported_and_the_next_one_begins(errors: UnexpectedErrors) -> None:
    for _ in range(3):
        with errors.catching(TASK):
            raise ValueError
    assert errors.counts == {TASK: 3}


async def test_a_cancellation_goes_through_a_round(time: VirtualTime, errors: UnexpectedErrors) -> None:
    async def work() -> None:
        while True:
            with errors.catching(TASK):
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await time.turn()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert errors.counts == {TASK: 0}


async def test_the_first_of_several_parts_ends_them_all(time: VirtualTime) -> None:
    ended: list[str] = []

    async def part() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("part")

    with pytest.raises(ValueError, match="s3cret"):
        await run_until_first(part(), Work(time, failures=1)(), part())
    assert ended == ["part", "part"]


async def test_errors_of_several_parts_are_all_seen(errors: UnexpectedErrors) -> None:
    """Only one goes on; the others' would be reported when they are forgotten at some time, or never."""
    asyncio.get_running_loop().set_exception_handler(errors.of_loop)

    async def fail(error: Exception) -> None:
        raise error

    async def fail_at_the_end(error: Exception) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    for running in (run_until_first, gather_both):
        errors.counts.clear()
        with pytest.raises(TransientError):
            await running(fail(TransientError("lost")), fail_at_the_end(KeyError()))
        assert errors.counts == {CALLBACKS: 1}
        with pytest.raises(TransientError):
            await running(fail(TransientError("lost")), fail_at_the_end(TransientError("also lost")))
        assert errors.counts == {CALLBACKS: 1}, "a broker's error was foreseen"
        cancelled = asyncio.ensure_future(running(fail_at_the_end(KeyError()), fail_at_the_end(IndexError())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert errors.counts[CALLBACKS] + (not cancelled.cancelled()) == 3
        assert cancelled.cancelled() or isinstance(cancelled.exception(), LookupError)


async def test_a_part_that_is_cancelled_from_within_ends_them_all(
    time: VirtualTime, errors: UnexpectedErrors, tasks: GuardedTasks
) -> None:
    """A task group would go on without it."""

    async def part() -> None:
        awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    tasks.once(TASK, run_until_first(Work(time, failures=0)(), part()))
    await time.turn()
    assert errors.counts == {TASK: 1}


async def test_errors_of_callbacks_are_reported(time: VirtualTime, errors: UnexpectedErrors) -> None:
    def fail() -> None:
        raise ValueError

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(errors.of_loop)
    loop.call_soon(fail)
    await time.turn()
    assert errors.counts == {CALLBACKS: 1}


@pytest.mark.parametrize("error", [ConnectionResetError(), None])
async def test_what_networks_do_to_a_loop_is_only_logged(errors: UnexpectedErrors, error: Exception | None) -> None:
    context: dict[str, Any] = {"message": "SSL error in data received"} | ({"exception": error} if error else {})
    errors.of_loop(asyncio.get_running_loop(), context)
    assert errors.counts == {}


async def test_a_log_that_fails_ends_no_task(time: VirtualTime, tasks: GuardedTasks) -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        raise UnprintableError

    tasks.keep(TASK, work)
    await time.advance(10)
    assert rounds > 2
    await tasks.end(1)
