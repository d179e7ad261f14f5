"""Makes this process a simulated one: its clocks are the loop's, and what it takes for entropy follows from the seed.

It has to be called before the agent is imported, in a process that does nothing else: no code of the agent is changed,
only what the interpreter gives it. Sets of strings are ordered by PYTHONHASHSEED, which has to be set as well.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable
from typing import Final

BEGIN: Final = 1_800_000_000.0  # seconds since 1970
real_time: Final = time.perf_counter
real_effort: Final = time.process_time


def simulate_clocks() -> None:
    time.time, time.monotonic = _since(BEGIN), _since(0.0)
    time.perf_counter = time.thread_time = lambda: 0.0  # nothing that is done in one go takes time
    os.urandom = random.randbytes
    uuid.uuid4 = lambda: uuid.UUID(int=random.getrandbits(128), version=4)


def _since(begin: float) -> Callable[[], float]:
    running = asyncio._get_running_loop  # it raises nothing where there is none

    def now() -> float:
        loop = running()
        return begin if loop is None else begin + loop.time()

    return now
