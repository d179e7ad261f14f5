"""What the agent holds when it can't get rid of it."""

from __future__ import annotations

import time
from typing import Final

from tests.bench.bench import Bench
from tests.bench.process import memory_mib
from tests.bench.sides import Agent
from tests.bench.table import Measure, Target

SIZE: Final = 2**20
MESSAGES: Final = 300
SLOW: Final = 2 * SIZE  # bytes a second
SECONDS, SECONDS_QUICK = 60.0, 10.0
WINDOW: Final = 20
PATIENCE: Final = 120.0


def slow_downstream(bench: Bench) -> list[Measure]:
    """1 MiB messages pour in upstream while the way to the downstream takes 2 MiB a second: the agent's peak."""
    measure = Measure(
        "slow-downstream-memory", "MiB, the agent's peak", (Target(at_most=150, of_agent=True),), digits=0
    )
    with bench.pair.lab.proxy(bench.pair.down) as slow:
        for _ in range(bench.runs):
            slow.throttle(None)
            side = Agent(port=slow.port)
            with bench.pair.scene() as scene, side.ready(scene) as ready, scene.publisher() as publisher:
                ready.start()
                scene.wait_for_flow()
                before = slow.bytes_up
                slow.throttle(SLOW)
                publisher.ask("publish", count=MESSAGES, size=SIZE, window=WINDOW).answer(PATIENCE)
                time.sleep(SECONDS if bench.full else SECONDS_QUICK)
                peak = memory_mib(ready.processes["agent"], peak=True)
                measure.add(side.name, peak)
                print(f"  agent: at most {peak:.0f} MiB, {(slow.bytes_up - before) / SIZE:.0f} MiB passed", flush=True)
                slow.throttle(None)
    return [measure]
