"""How long bindings take to stand upstream, all at once and one by one, and to stand again after a cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.bench.bench import SIDES, Bench
from tests.bench.load import Worker
from tests.bench.measures.far import FAR
from tests.bench.scene import Scene
from tests.bench.sides import Agent, Side, running
from tests.bench.table import Measure, Target

MANY: Final = 2_000
VERY_MANY: Final = 20_000
# Natively each binding takes a round trip: two small numbers tell what many would take.
FEW, MORE = 20, 100
LATE, LATE_QUICK = 10, 5
# Not in step with anything that polls.
BETWEEN_LATE: Final = 0.57
RATE: Final = 100.0
PATIENCE, PATIENCE_QUICK = 900.0, 60.0

Timing = Callable[[Side, int], float]


def at_once(bench: Bench) -> list[Measure]:
    """From the policy on until 2,000 bindings stand upstream."""
    measure = Measure("bindings-2000", "s", (Target(at_most=0.7),))
    for side in bench.turns():
        measure.add(side.name, _told(side, MANY, _until_bound(bench, side, MANY, round_trip=0.0)))
    return [measure]


def at_once_far(bench: Bench) -> list[Measure]:
    """The same with 100 ms between the link and the upstream."""
    many = Measure("bindings-2000-100ms", "s", (Target(at_most=2.0, of_agent=True),))
    _compare(bench, many, lambda side, count: _until_bound(bench, side, count, round_trip=FAR))
    if not bench.full:
        return [many]
    very_many = Measure("bindings-20000-100ms", "s", (Target(at_most=8.0, of_agent=True),))
    for _ in range(bench.runs):
        seconds = _until_bound(bench, Agent(), VERY_MANY, round_trip=FAR)
        very_many.add("agent", _told(Agent(), VERY_MANY, seconds))
    return [many, very_many]


def again(bench: Bench) -> list[Measure]:
    """A link with 2,000 bindings and 100 ms of round trip is cut: until a newly published message passes."""
    measure = Measure("flow-again-100ms", "s", (Target(at_most=2.0, of_agent=True),))
    _compare(bench, measure, lambda side, count: _until_flowing(bench, side, count))
    return [measure]


def late(bench: Bench) -> list[Measure]:
    """One binding more on a link that runs, until it stands upstream."""
    near = Measure("late-binding", "ms", (Target(at_most=50, of_agent=True),), digits=1)
    far = Measure("late-binding-100ms", "ms", (Target(at_most=150, of_agent=True),), digits=1)
    polled = Measure("late-binding-polled", "ms", (Target(at_most=2500, of_agent=True),), digits=0)
    polled.note = "the agent may not read the broker's events"
    runs = bench.runs if bench.full else 1
    for measure, round_trip in ((near, 0.0), (far, FAR)):
        for side in bench.turns(runs):
            for seconds in _late(bench, side, round_trip):
                measure.add(side.name, seconds * 1000)
    with bench.pair.user_without_events() as user:
        for _ in range(runs):
            for seconds in _late(bench, Agent(user=user), 0.0):
                polled.add("agent", seconds * 1000)
    return [near, far, polled]


def _compare(bench: Bench, measure: Measure, timed: Timing) -> None:
    """Natively in full only where asked: it takes minutes."""
    if bench.full:
        for side in bench.turns():
            measure.add(side.name, _told(side, MANY, timed(side, MANY)))
        return
    native, agent = SIDES
    few, more = (_told(native, count, timed(native, count)) for count in (FEW, MORE))
    measure.add(native.name, more + (MANY - MORE) * (more - few) / (MORE - FEW))
    for _ in range(bench.runs):
        measure.add(agent.name, _told(agent, MANY, timed(agent, MANY)))
    measure.note = f"native is extrapolated from one run of {FEW} and {MORE} bindings; --full measures all {MANY}"


def _told(side: Side, count: int, seconds: float) -> float:
    print(f"  {side.name}: {count} bindings {seconds:.2f} s", flush=True)
    return seconds


def _patience(bench: Bench) -> float:
    return PATIENCE if bench.full else PATIENCE_QUICK


def _keys(count: int) -> list[str]:
    return [f"k.{number}" for number in range(count - 1)] + ["k"]


def _until_bound(bench: Bench, side: Side, count: int, *, round_trip: float) -> float:
    with bench.pair.scene(round_trip, keys=_keys(count)) as scene, side.ready(scene) as ready:
        with scene.watcher() as watcher:
            began = ready.start()
            at = watcher.ask("wait", bindings=count, consumers=1).answer(_patience(bench))["at"]
        _check(scene, count)
        return float(at - began)


def _check(scene: Scene, count: int) -> None:
    """Events tell when; the broker's own list tells whether it is true."""
    found = scene.pair.up.admin.get("exchanges", scene.vhost, scene.exchange, "bindings", "source")
    if len(found) != count:
        raise AssertionError(f"{len(found)} bindings stand upstream where {count} should")


def _until_flowing(bench: Bench, side: Side, count: int) -> float:
    with bench.pair.scene(FAR, keys=_keys(count)) as scene, side.ready(scene) as ready:
        with scene.watcher() as watcher:
            ready.start()
            watcher.ask("wait", bindings=count, consumers=1).answer(_patience(bench))
        scene.wait_for_flow()
        with scene.trickle() as trickle:
            trickle.ask("start", rate=RATE).answer()
            trickle.ask("after", time=time.monotonic()).answer()
            cut = time.monotonic()
            bench.pair.far.cut()
            return float(trickle.ask("after", time=cut).answer(_patience(bench))["at"] - cut)


def _late(bench: Bench, side: Side, round_trip: float) -> list[float]:
    with bench.pair.scene(round_trip) as scene, scene.watcher() as watcher, running(scene, side):
        return [_bind_late(scene, watcher, number) for number in range(LATE if bench.full else LATE_QUICK)]


def _bind_late(scene: Scene, watcher: Worker, number: int) -> float:
    time.sleep(BETWEEN_LATE)
    binding = {"uri": scene.down_uri, "exchange": scene.exchange, "queue": scene.queue, "key": f"late.{number}"}
    return float(watcher.ask("late", binding=binding).answer()["seconds"])
