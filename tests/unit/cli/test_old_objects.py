"""What full collections leave out, and when they go through all again. In a process of its own: it is about all its
objects.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from agent.cli.run import ALL_EVERY, OldObjects

class Cycle:
    alive = 0
    def __init__(self):
        self.own = self
        Cycle.alive += 1
    def __del__(self):
        Cycle.alive -= 1

now = 0.0
gc.disable()
gc.callbacks.append(OldObjects(lambda: now))

def begin(count):
    found = [Cycle() for _ in range(count)]
    gc.collect()
    return found

held = begin(1_000)
old = gc.get_freeze_count()
assert old > 1_000 and len(gc.get_objects()) < old / 10, "they are left out"
held.clear()
gc.collect()
assert Cycle.alive == 1_000, "not gone through while links begin"
now = ALL_EVERY
gc.collect()
assert Cycle.alive == 0, "all are gone through"
held = begin(1_000)
held.clear()
now = 2 * ALL_EVERY - 1
gc.collect()
assert Cycle.alive == 1_000, "and left out again"
"""


def test_old_objects_are_gone_through_once_an_hour() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
