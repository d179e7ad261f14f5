"""Many links: how soon they run, and what they take while nothing passes them."""

from __future__ import annotations

import time
from typing import Final

from tests.bench.bench import Bench
from tests.bench.process import Meter, connections_to, memory_mib
from tests.bench.scene import Pair
from tests.bench.sides import Agent, Side
from tests.bench.table import Measure, Target

FEW, MANY = 200, 1_000
REPLICAS: Final = 3
PATIENCE: Final = 300.0
SETTLED, SETTLED_QUICK = 45.0, 3.0  # canaries are placed for 30 s, and statistics are collected each 5 s
IDLE, IDLE_QUICK = 30.0, 5.0


def links(bench: Bench) -> list[Measure]:
    """From the policy on until all links run; then sockets, memory, and CPU while nothing passes."""
    sizes = (FEW, MANY) if bench.full else (FEW,)
    return [measure for count in sizes for measure in _of(bench, count)]


def _of(bench: Bench, count: int) -> list[Measure]:
    about_many = count == MANY
    idle_target = (Target(at_most=4.0, of_agent=True),) if about_many else ()
    found = {
        "time": Measure(f"links-{count}", "s", (Target(at_most=1.0),)),
        "sockets": Measure(f"links-{count}-sockets", "connections", (Target(at_most=20, of_agent=True),), digits=0),
        "agent": Measure(
            f"links-{count}-memory", "MiB, the agent alone", (Target(at_most=150, of_agent=True),), digits=0
        ),
        "brokers": Measure(f"links-{count}-growth", "MiB more in both brokers", digits=0, compared=False),
        "idle": Measure(f"links-{count}-idle-cpu", "% of a core, brokers and agent", idle_target, digits=1),
    }
    seconds = IDLE if bench.full else IDLE_QUICK
    found["idle"].note = f"over {seconds:g} s; the brokers without any link: {_idle(bench.pair.pids, seconds):.1f} %"
    for side in bench.turns():
        _run(bench, side, count, found, seconds=seconds)
    return list(found.values())


def _run(bench: Bench, side: Side, count: int, found: dict[str, Measure], *, seconds: float) -> None:
    pair = bench.pair
    with pair.scene(exchanges=[f"x{number}" for number in range(count)]) as scene, scene.watcher() as watcher:
        sockets, memory = _sockets(pair), _memory(pair)
        with side.ready(scene) as ready:
            began = ready.start()
            at = watcher.ask("wait", bindings=count, consumers=count).answer(PATIENCE)["at"]
            found["time"].add(side.name, at - began)
            time.sleep(SETTLED if bench.full else SETTLED_QUICK)
            found["sockets"].add(side.name, _sockets(pair) - sockets)
            found["brokers"].add(side.name, _memory(pair) - memory)
            for pid in ready.processes.values():
                found["agent"].add(side.name, memory_mib(pid))
            found["idle"].add(side.name, _idle({**pair.pids, **ready.processes}, seconds))
    told = ", ".join(
        f"{name} {measure.values[side.name][-1]:.2f}" for name, measure in found.items() if side.name in measure.values
    )
    print(f"  {side.name}: {count} links: {told}", flush=True)


def replicas(bench: Bench) -> list[Measure]:
    """What three agents that share links take while nothing passes, by what one of them takes alone."""
    count = MANY if bench.full else FEW
    seconds = IDLE if bench.full else IDLE_QUICK
    measure = Measure(
        "replicas-idle-cpu",
        "three agents, by one; brokers included",
        (Target(at_most=1.5, of_agent=True),),
        compared=False,
    )
    for _ in range(bench.runs):
        one, three = (_idle_of(bench, Agent(replicas=number), count, seconds) for number in (1, REPLICAS))
        measure.add("agent", three / one)
    return [measure]


def _idle_of(bench: Bench, side: Agent, count: int, seconds: float) -> float:
    pair, exchanges = bench.pair, [f"x{number}" for number in range(count)]
    with pair.scene(exchanges=exchanges) as scene, scene.watcher() as watcher, side.ready(scene) as ready:
        ready.start()
        watcher.ask("wait", bindings=count, consumers=count).answer(PATIENCE)
        time.sleep(SETTLED if bench.full else SETTLED_QUICK)
        return _idle({**pair.pids, **ready.processes}, seconds)


def _sockets(pair: Pair) -> int:
    """Those to the upstream, and those that the agent has to the downstream besides."""
    return connections_to((pair.up.amqp_port, pair.down.amqp_port, pair.down.management_port))


def _memory(pair: Pair) -> float:
    return sum(memory_mib(pid) for pid in pair.pids.values())


def _idle(processes: dict[str, int], seconds: float) -> float:
    meter = Meter(processes)
    time.sleep(seconds)
    shares = {name: spent / seconds * 100 for name, spent in meter.spent().items()}
    print("  idle: " + ", ".join(f"{name} {share:.1f} %" for name, share in shares.items()), flush=True)
    return sum(shares.values())
