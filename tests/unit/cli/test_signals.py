"""A command tidies up at the first signal, also where its terminal is closed; and the process ends in time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import typer

from agent.cli.signals import until_signal


@pytest.fixture(autouse=True)
def _default_signals() -> Iterator[None]:
    """Whatever started the tests: in the background, or by nohup, some are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGHUP, before[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_lets_it_tidy_up(number: signal.Signals) -> None:
    tidied: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            tidied.append("up")

    with pytest.raises(typer.Exit) as left:
        until_signal(work(), 130)
    assert (left.value.exit_code, tidied) == (130, ["up"])


def test_a_terminal_that_closes_is_ignored_where_that_was_asked_for() -> None:
    """As `nohup` does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work() -> str:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.01)
        return "done"

    try:
        assert until_signal(work(), 130) == "done"
    finally:
        signal.signal(signal.SIGHUP, before)


SCRIPT = """
import asyncio, time
from agent.cli.signals import StopDeadline

async def work() -> None:
    deadline = StopDeadline(lambda: print("not stopped", flush=True), seconds={seconds}, for_threads=0.1)
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    deadline.start()
    {then}

asyncio.run(work())
"""


@pytest.mark.parametrize(
    ("then", "seconds", "status", "output"),
    [
        ("deadline.settled()", 60.0, 0, ""),
        ("await asyncio.sleep(60)", 0.1, 1, "not stopped"),
        ("time.sleep(60)", 0.1, 1, "not stopped"),
    ],
)
def test_a_thread_that_hangs_keeps_no_process(then: str, seconds: float, status: int, output: str) -> None:
    begun = time.monotonic()
    script = SCRIPT.format(then=then, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.strip()) == (status, output)
    assert time.monotonic() - begun < 20
