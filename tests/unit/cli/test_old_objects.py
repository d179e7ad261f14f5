"""What full collections leave out, and when all is gone through again. In a process of its own: it is about all its
objects.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, gc
from agent.cli.run import ALL_EVERY, COLLECT_AFTER, GROWN, collect_old, leave_out_old

class Cycle:
    alive = 0
    def __init__(self):
        self.own = self
        Cycle.alive += 1
    def __del__(self):
        Cycle.alive -= 1

async def hour_after_hour():
    waits, kept = [], []

    async def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 1:
            held = [Cycle() for _ in range(1_000)]
            gc.collect()
            assert len(gc.get_objects()) < gc.get_freeze_count() / 10, "they are left out"
            held.clear()
            gc.collect()
            assert Cycle.alive == 1_000, "and kept"
        elif len(waits) == 3:
            assert Cycle.alive == 1_000, "as long as there are few"
            kept.extend([] for _ in range(int(gc.get_freeze_count() * (GROWN - 0.9))))
            gc.collect()
        elif len(waits) == 4:
            assert Cycle.alive == 0, "and not if there are many"
            raise SystemExit(0 if waits == [ALL_EVERY] * 4 else 1)
        elif len(waits) == 2:
            assert Cycle.alive == 0, "for an hour"
            assert len(gc.get_objects()) < gc.get_freeze_count() / 10, "what is left is left out again"
            gc.set_threshold(*COLLECT_AFTER)
            gc.enable()
            many, before = [], gc.get_stats()[2]["collections"]
            while gc.get_stats()[2]["collections"] == before:
                many.append([])
            assert len(many) < 80_000, len(many)
            gc.disable()
            del many
            held = [Cycle() for _ in range(1_000)]
            gc.collect()
            held.clear()

    await collect_old(sleep)

gc.disable()
gc.callbacks.append(leave_out_old)
asyncio.run(hour_after_hour())
"""


def test_what_is_old_is_gone_through_once_an_hour() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
