"""The agent beside other ways to move messages from queue to queue: what each takes, what a cut connection loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.bench.bench import SIDES, Bench
from tests.bench.measures.cut import Cut, cut
from tests.bench.measures.throughput import MICRO, fill
from tests.bench.peers.peer import PEERS, NotInstalledError
from tests.bench.process import Meter, memory_mib
from tests.bench.sides import Side
from tests.bench.table import Measure
from tests.bench.work import SHOVELS

FULL, QUICK = 100_000, 10_000
PATIENCE: Final = 900.0
COLUMNS: Final = ("", "messages/s", "CPU in all, µs", "own CPU, µs", "memory, MiB", "lost", "twice", "goes on")


def peers(bench: Bench) -> list[Measure]:
    """Messages from queue to queue with confirms: native shovel, agent, and programs that others would use."""
    found = {
        "rate": Measure("peers-rate", "messages/s, higher is better", digits=0),
        "cpu": Measure("peers-cpu", "µs a message, brokers and mover", digits=1),
        "own": Measure("peers-own-cpu", "µs a message, the mover alone", digits=1),
        "memory": Measure("peers-memory", "MiB, the mover's peak", digits=0),
    }
    sides, missing = _sides()
    for side in bench.turns(sides=sides):
        _move(bench, side, found)
    cuts = {side.name: cut(bench.pair, side) for side in sides}
    _print_table(sides, found, cuts)
    found["rate"].note = f"left out, not installed: {', '.join(missing)}" if missing else ""
    return list(found.values())


def _sides() -> tuple[Sequence[Side], list[str]]:
    """Those that can run, and why others can't."""
    sides: list[Side] = [*SIDES]
    missing = []
    for peer in PEERS:
        try:
            peer.install()
        except NotInstalledError as error:
            print(f"  {peer.name} is left out, because it can't be installed: {error}", flush=True)
            missing.append(peer.name)
        else:
            sides.append(peer)
    return sides, missing


def _move(bench: Bench, side: Side, found: Mapping[str, Measure]) -> None:
    """A backlog, from the first delivery to the last; CPU includes the mover's connecting, and not its imports."""
    count = FULL if bench.full else QUICK
    with bench.pair.scene(work=SHOVELS) as scene:
        fill(scene, count)
        with side.ready(scene) as ready, scene.consumer() as consumer:
            meter = Meter({**bench.pair.pids, **ready.processes})
            consumer.ask("count", count=count)
            ready.start()
            came = consumer.answer(PATIENCE)
            spent = {name: seconds * MICRO / count for name, seconds in meter.spent().items()}
            found["rate"].add(side.name, count / (came["last"] - came["first"]))
            found["cpu"].add(side.name, sum(spent.values()))
            for name, pid in ready.processes.items():
                found["own"].add(side.name, spent[name])
                found["memory"].add(side.name, memory_mib(pid, peak=True))
    each = ", ".join(f"{name} {value:.1f} µs" for name, value in spent.items())
    print(f"  {side.name}: {found['rate'].values[side.name][-1]:.0f}/s, {each}", flush=True)


def _print_table(sides: Sequence[Side], found: Mapping[str, Measure], cuts: Mapping[str, Cut]) -> None:
    """Medians, as a table of Markdown."""
    print(f"\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for side in sides:
        values = [_median(measure, side.name) for measure in found.values()]
        seen = cuts[side.name]
        print(f"| {' | '.join([side.name, *values, str(seen.lost), str(seen.twice), seen.goes_on])} |")
    print(flush=True)


def _median(measure: Measure, side: str) -> str:
    value = measure.median(side)
    return "-" if value is None else f"{value:.{measure.digits}f}"
