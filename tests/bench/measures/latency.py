"""How long a message is on its way when there are few."""

from __future__ import annotations

from statistics import quantiles
from typing import Final

from tests.bench.bench import Bench
from tests.bench.scene import Scene
from tests.bench.sides import running
from tests.bench.table import Measure, Target

RATE: Final = 200
WARM_UP: Final = 200
QUICK, FULL = 1_000, 6_000
MILLI: Final = 1_000


def latency(bench: Bench) -> list[Measure]:
    """200 persistent messages a second, from before the publish to after the delivery, on one clock."""
    targets = (Target(at_most=1.5),)
    half, most = Measure("latency-p50", "ms", targets), Measure("latency-p99", "ms", targets)
    for side in bench.turns():
        with bench.pair.scene() as scene, running(scene, side):
            _add(scene, side.name, half, most, bench.full)
    for _ in range(bench.runs):
        with bench.pair.scene() as scene:
            _add(scene.without_link(), "none", half, most, bench.full)
    for measure in (half, most):
        measure.note = f"{measure.median('none'):.2f} ms without any link, upstream"
    return [half, most]


def _add(scene: Scene, side: str, half: Measure, most: Measure, full: bool) -> None:
    with scene.trickle() as trickle:
        trickle.ask("latency", rate=RATE, count=WARM_UP).answer()
        seconds = trickle.ask("latency", rate=RATE, count=FULL if full else QUICK).answer()["seconds"]
    cuts = quantiles(seconds, n=100)
    half.add(side, cuts[49] * MILLI)
    most.add(side, cuts[98] * MILLI)
    print(f"  {side}: p50 {cuts[49] * MILLI:.2f} ms, p99 {cuts[98] * MILLI:.2f} ms", flush=True)
