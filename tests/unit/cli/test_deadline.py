"""A process that was told to stop ends in time, though a thread of it never does."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

SCRIPT = """
import asyncio, time
from agent.cli.deadline import StopDeadline

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
