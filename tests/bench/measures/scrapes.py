"""What a scrape a second costs messages and time, where an agent has many links."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Final

from tests.bench.bench import Bench
from tests.bench.load import Worker
from tests.bench.measures.latency import MILLI, RATE, WARM_UP
from tests.bench.sides import Agent
from tests.bench.table import Measure, Target

FULL, QUICK = 2_000, 200
FULL_COUNT, QUICK_COUNT = 4_000, 1_000
TURNS: Final = 3
PATIENCE: Final = 300.0
INTERVAL: Final = 1.0


def scrapes(bench: Bench) -> list[Measure]:
    """200 persistent messages a second over one of many links, with a scrape a second and without, in turn."""
    count = FULL if bench.full else QUICK
    exchanges = ["x", *(f"x{number}" for number in range(1, count))]
    without = Measure("unscraped-p99", "ms, the agent alone")
    scraped = Measure("scraped-p99", "ms, the agent alone")
    takes = Measure(f"scrape-{count}-links", "s", (Target(at_most=1.0, of_agent=True),), digits=3)
    side = Agent()
    with bench.pair.scene(exchanges=exchanges) as scene, scene.watcher() as watcher, side.ready(scene) as ready:
        ready.start()
        watcher.ask("wait", bindings=count, consumers=count).answer(PATIENCE)
        scene.wait_for_flow()
        with scene.trickle() as trickle:
            trickle.ask("latency", rate=RATE, count=WARM_UP).answer()
            for turn in range(2 * TURNS):
                if turn % 2 == 0:
                    _add(without, trickle, full=bench.full)
                else:
                    with _scraping(f"http://127.0.0.1:{bench.pair.agent_port}/metrics", takes):
                        _add(scraped, trickle, full=bench.full)
    return [without, scraped, takes]


def _add(measure: Measure, trickle: Worker, *, full: bool) -> None:
    count = FULL_COUNT if full else QUICK_COUNT
    cuts = quantiles(trickle.ask("latency", rate=RATE, count=count).answer()["seconds"], n=100)
    measure.add("agent", cuts[98] * MILLI)
    print(f"  {measure.name}: p50 {cuts[49] * MILLI:.2f} ms, p99 {cuts[98] * MILLI:.2f} ms", flush=True)


@contextmanager
def _scraping(url: str, takes: Measure) -> Iterator[None]:
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(INTERVAL):
            began = time.monotonic()
            with urllib.request.urlopen(url, timeout=30) as answer:
                answer.read()
            takes.add("agent", time.monotonic() - began)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
