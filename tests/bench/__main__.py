"""`make bench`: the measures of federation, native beside agent; the last lines are `RATIO name value`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.bench.bench import Bench
from tests.bench.load import WorkerError
from tests.bench.measures.decisions import print_decisions
from tests.bench.measures.registry import MEASURES, ONLY_BY_NAME, WITHOUT_BROKERS, Measuring
from tests.bench.scene import Pair
from tests.bench.table import Measure, machine, print_lines, print_table
from tests.lab.admin import AdminError
from tests.lab.lab import Lab
from tests.lab.node import NodeError
from tests.lab.waiting import NeverHappenedError

NAMES = (*WITHOUT_BROKERS, *MEASURES)
FAILURES = (WorkerError, AdminError, NeverHappenedError, NodeError, OSError)


def main() -> int:
    told = _arguments()
    began = time.monotonic()
    only = told.only.split(",") if told.only else [name for name in NAMES if name not in ONLY_BY_NAME]
    measures = [found for name in only if name in WITHOUT_BROKERS for found in WITHOUT_BROKERS[name]()]
    only = [name for name in only if name in MEASURES]
    if not only:
        print_table(measures)
        print_lines(measures)
        return 0
    failed: list[str] = []
    with Lab() as lab:
        print("starting two brokers …", flush=True)
        pair = Pair.start(lab, told.release)
        versions = [node.admin.get("overview")["rabbitmq_version"] for node in (pair.down, pair.up)]
        version = tuple(int(part) for part in versions[0].split(".")[:2])
        bench = Bench(
            pair, version, full=told.full, runs=told.runs, sizes=tuple(told.links), replicas=tuple(told.agents)
        )
        where = f"{machine(*versions)}; load when it began {os.getloadavg()[0]:.1f}"
        print(where, flush=True)
        for name in only:
            measures += _measured(name, MEASURES[name], bench, failed)
    sizes = "full" if told.full else "quick"
    print(f"\n{where}; {sizes} sizes, {told.runs} runs, {time.monotonic() - began:.0f} s")
    print("lowest / median / highest of each side; ratio: agent over native, of the medians\n")
    print_table(measures)
    for name in failed:
        print(f"FAILED {name}")
    if not told.only:
        print_decisions()
    print_lines(measures)
    return 1 if failed else 0


def _measured(name: str, measure: Measuring, bench: Bench, failed: list[str]) -> Sequence[Measure]:
    """A measure that fails takes no other with it."""
    began = time.monotonic()
    print(f"{name}: {(measure.__doc__ or '').strip()}", flush=True)
    try:
        return measure(bench)
    except FAILURES as error:
        print(f"  failed: {type(error).__name__}: {error}", flush=True)
        failed.append(name)
        return ()
    finally:
        print(f"  took {time.monotonic() - began:.0f} s", flush=True)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--release", help="brokers of `make versions`, such as trixie; this machine's by default")
    parser.add_argument("--only", help=f"some of {', '.join(NAMES)}; with commas between")
    parser.add_argument("--runs", type=int, default=2, help="how often each side has its turn; 2")
    parser.add_argument("--links", type=_numbers, default=(), help="the sizes of `scale`; with commas between")
    parser.add_argument("--agents", type=_numbers, default=(), help="how many agents share the links of `scale`")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="small sizes, for the shape; the default")
    sizes.add_argument("--full", action="store_true", help="the sizes that the targets are about")
    told = parser.parse_args()
    if unknown := set((told.only or "").split(",")) - {*NAMES, ""}:
        parser.error(f"no such measure: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return told


if __name__ == "__main__":
    sys.exit(main())
