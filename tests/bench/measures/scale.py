"""From a thousand links to ten thousand: what grows with them, and what more than they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from tests.bench.bench import Bench
from tests.bench.fleet import UPSTREAMS, Fleet
from tests.bench.fleet_agent import FleetAgent
from tests.bench.load import Worker
from tests.bench.process import Meter, connections_to, memory_mib
from tests.bench.standstill import Standstill
from tests.bench.table import Measure, Target
from tests.lab.waiting import NeverHappenedError

SIZES, SIZES_QUICK = (1_000, 10_000), (100, 500)
REPLICAS: Final = (1, 3)
RUN_WITHIN, RUN_WITHIN_QUICK = 900.0, 120.0
IDLE, IDLE_QUICK = 30.0, 5.0
AWAY, AWAY_QUICK = 60.0, 5.0
"""An hour is no other state for an agent: its pauses between two attempts don't grow after some seconds."""
LATE: Final = 7
BETWEEN_LATE: Final = 0.57
ASKED: Final = 3
LOOK_EVERY: Final = 0.1
LONGEST_STANDSTILL: Final = 0.1  # seconds
MIB: Final = 2**20

Found = dict[str, float]
"""By what a line of the table is called."""
STOOD_STILL: Final = "stood still, s"


def scale(bench: Bench) -> list[Measure]:
    """20 vhosts, each with 5 upstreams, by one agent and by three that share the links; without the plugin."""
    sizes = bench.sizes or (SIZES if bench.full else SIZES_QUICK)
    found: dict[tuple[int, int], Found] = {}
    for replicas in bench.replicas or REPLICAS:
        for count in sizes:
            found[replicas, count] = Run(bench, Fleet(bench.pair, count), replicas).measured()
            print_rows(found)
    return [each for replicas in bench.replicas or REPLICAS if len(sizes) > 1 for each in _judged(found, replicas)]


@dataclass
class Run:
    """One size. A step whose deadline passes ends the run, and what was found by then stays."""

    bench: Bench
    fleet: Fleet
    replicas: int
    found: Found = field(default_factory=dict)
    agents: list[FleetAgent] = field(default_factory=list)
    probes: list[Standstill] = field(default_factory=list)

    def measured(self) -> Found:
        pids = self.bench.pair.pids
        with self.fleet.furnished(), self.fleet.watcher() as watcher, self.fleet.agents(self.replicas) as self.agents:
            before = {name: memory_mib(pid) for name, pid in pids.items()}
            sockets = self._sockets()
            try:
                with self._watched():
                    self._begin(watcher)
                self.found["sockets"] = self._sockets() - sockets
                self.found["agent MiB"] = sum(memory_mib(agent.pid) for agent in self.agents)
                for name, pid in pids.items():
                    self.found[f"{name} MiB more"] = memory_mib(pid) - before[name]
                self._idle(pids)
                with self._watched():
                    self._work(watcher)
            except NeverHappenedError as error:
                print(f"  {self.fleet.count} links, {self.replicas} agents: {error}", flush=True)
        return self.found

    def _begin(self, watcher: Worker) -> None:
        with self._timed("run, s"):
            self._tell()
            self._until_made(watcher, "consumers", self.fleet.count)
        self._until(self._running, self.fleet.count, "links that run")
        with self._timed("settled, s"):  # each link makes a second binding, of what notices deletions
            self._until_made(watcher, "bindings", 2 * self.fleet.count)

    def _work(self, watcher: Worker) -> None:
        with self._timed("late bindings"):
            self.found["a binding, s"] = median(self._bind(watcher, number) for number in range(LATE))
        self._ask()
        with self._timed("policy, s"):
            made = _count(watcher)["consumers"]
            self._tell(with_fewer=True)
            self._until_made(watcher, "consumers", int(made) + self.fleet.count)
        self._until(self._running, self.fleet.count, "links that run with another policy")
        with self._timed("restart, s"):
            self._restart()
            self._until(self._running, self.fleet.count, "links that run after a restart")
        self._lose_upstream()

    def _tell(self, *, with_fewer: bool = False) -> None:
        for agent in self.agents:
            agent.tell(self.fleet.vhosts(with_fewer=with_fewer))
            agent.reload()

    def _bind(self, watcher: Worker, number: int) -> float:
        time.sleep(BETWEEN_LATE)
        return float(watcher.ask("late", binding=self.fleet.late_binding(number)).answer()["seconds"])

    def _ask(self) -> None:
        """As a scraper, the page, and somebody at a terminal do."""
        agent = self.agents[0]
        for path in ("/metrics", "/api/links", "/api/causes"):
            with self._timed(f"asked {path}"):
                answers = [agent.asked(path) for _ in range(ASKED)]
            self.found[f"{path}, s"] = median(seconds for seconds, _ in answers)
            self.found[f"{path}, MiB"] = answers[-1][1] / MIB
        with self._timed("asked for the page"):
            self.found["page, s"] = median(agent.first_event() for _ in range(ASKED))
        for name in ("status", "links"):
            with self._timed(f"asked by {name}"):
                self.found[f"`{name}`, s"] = median(agent.command(name) for _ in range(ASKED))

    def _restart(self) -> None:
        """Of one agent; others of its group take its links meanwhile."""
        self.agents[0].restart()
        self.probes[0].follow(self.agents[0].pid)

    def _lose_upstream(self) -> None:
        far, lost = self.bench.pair.far, self.fleet.count // UPSTREAMS
        with self._timed("upstream away"):
            far.refuse()
            far.cut()
            self._until(lambda: self.fleet.count - self._running(), lost, "links whose upstream is away")
            meter, seconds = self._meter({}), AWAY if self.bench.full else AWAY_QUICK
            time.sleep(seconds)
            self.found["agent while the upstream is away, %"] = sum(meter.spent().values()) / seconds * 100
            self.found["/api/causes while it is away, s"], _ = self.agents[0].asked("/api/causes")
        with self._timed("upstream back, s"):
            far.accept()
            self._until(self._running, self.fleet.count, "links that run after their upstream came back")

    def _idle(self, pids: dict[str, int]) -> None:
        """Nobody asks the agent meanwhile."""
        seconds = IDLE if self.bench.full else IDLE_QUICK
        meter = self._meter(pids)
        time.sleep(seconds)
        for name, spent in meter.spent().items():
            column = f"{name.split()[0]} idle, %"
            self.found[column] = self.found.get(column, 0.0) + spent / seconds * 100

    def _meter(self, pids: dict[str, int]) -> Meter:
        return Meter(pids | {f"agent {number}": agent.pid for number, agent in enumerate(self.agents)})

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Whether an agent stands still is asked, too."""
        with ExitStack() as watching:
            made = [Standstill(agent.port, agent.pid) for agent in self.agents]
            self.probes = [watching.enter_context(each) for each in made]
            yield

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        self._standstill()
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            still, late = self._standstill()
            if what.endswith(", s"):
                self.found[what] = seconds
            print(f"    {what}: {seconds:.2f} s; stood still {still:.3f} s, answered in {late:.3f} s", flush=True)
            self.found[STOOD_STILL] = max(still, self.found.get(STOOD_STILL, 0.0))

    def _standstill(self) -> tuple[float, float]:
        taken = [each.take() for each in self.probes]
        return max(still for still, _ in taken), max(late for _, late in taken)

    def _running(self) -> int:
        return sum(agent.running() for agent in self.agents)

    def _sockets(self) -> int:
        pair = self.bench.pair
        return connections_to((pair.far.port, pair.up.amqp_port, pair.down.amqp_port, pair.down.management_port))

    def _until_made(self, watcher: Worker, what: str, wanted: int) -> None:
        self._until(lambda: int(_count(watcher)[what]), wanted, f"{what} upstream")

    def _until(self, reached: Callable[[], int], wanted: int, what: str) -> None:
        patience = RUN_WITHIN if self.bench.full else RUN_WITHIN_QUICK
        end = time.monotonic() + patience
        while (now := reached()) < wanted:
            if time.monotonic() >= end:
                raise NeverHappenedError(f"{wanted} {what}", patience, now)
            time.sleep(LOOK_EVERY)


def _count(watcher: Worker) -> Found:
    found: Found = watcher.ask("count").answer()
    return found


def print_rows(found: dict[tuple[int, int], Found]) -> None:
    """A line for each quantity, a column for each run."""
    heads = [f"{count:,} links, {replicas} agent{'s' * (replicas > 1)}" for replicas, count in found]
    names = dict.fromkeys(name for each in found.values() for name in each)
    print("\n| | " + " | ".join(heads) + " |\n|---" + "|---" * len(heads) + "|")
    for name in names:
        cells = [f"{each[name]:.4g}" if name in each else "-" for each in found.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(flush=True)


def _judged(found: dict[tuple[int, int], Found], replicas: int) -> list[Measure]:
    """By how much each quantity grew from the smallest size to the largest."""
    few, *_, many = sorted(count for number, count in found if number == replicas)
    before, after = found[replicas, few], found[replicas, many]
    measures = []
    for name in [each for each in before if before[each] and each in after and each != STOOD_STILL]:
        target = Target(at_most=many / few, of_agent=True)
        grown = Measure(f"{name} ({replicas})", f"by, for {many / few:g} times the links", (target,))
        grown.add("agent", after[name] / before[name])
        measures.append(grown)
    still = Measure(f"{STOOD_STILL} ({replicas})", "s", (Target(at_most=LONGEST_STANDSTILL, of_agent=True),), digits=3)
    still.add("agent", after[STOOD_STILL])
    return [*measures, still]
