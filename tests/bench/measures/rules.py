"""What header rules cost the agent for each message: the agent with rules beside the agent without, in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.bench.bench import Bench
from tests.bench.load import WINDOW
from tests.bench.measures.throughput import FULL, MICRO, QUICK, SIZE
from tests.bench.process import Meter
from tests.bench.sides import Agent, running
from tests.bench.table import Measure, Target
from tests.bench.work import Federation
from tests.lab import user_program

OWN: Final = {"class": "order.created", "trace-id": "4bf92f3577b34da6a3ce929d0e0e4736", "n": 3}
RULES: Final[Mapping[str, tuple[Mapping[str, Any], float]]] = {
    "rules-none": ({}, 1.05),
    "rules-constant": ({"set-headers": {"site": "eu-1"}}, 1.1),
    "rules-removal": ({"remove-headers": ["trace-*"]}, 1.5),
}
EXPECTED: Final[Mapping[str, set[str]]] = {
    "rules-none": {*OWN},
    "rules-constant": {*OWN, "site"},
    "rules-removal": {*OWN} - {"trace-id"},
}
SAMPLE: Final = 20


def rules(bench: Bench) -> list[Measure]:
    """`live` with three headers in each message, by the agent without rules, once more, and with each of them."""
    unit, note = "µs a message, the agent alone", "`native` is the agent without rules; `rules-none` shows the noise"
    found = {
        name: Measure(name, unit, (Target(at_most=most),), digits=1, note=note) for name, (_, most) in RULES.items()
    }
    for run in range(bench.runs):
        names = ["plain", *RULES]
        spent = {name: _spent(bench, name) for name in (names if run % 2 == 0 else names[::-1])}
        for name, measure in found.items():
            measure.add("native", spent["plain"])
            measure.add("agent", spent[name])
    return list(found.values())


def _spent(bench: Bench, name: str) -> float:
    keys = RULES[name][0] if name in RULES else {}
    work = replace(Federation("^x", "exchanges"), keys=keys)
    count = FULL if bench.full else QUICK
    with (
        bench.pair.scene(work=work) as scene,
        running(scene, Agent()) as processes,
        scene.publisher() as publisher,
    ):
        message: dict[str, Any] = {"size": SIZE, "headers": OWN}
        publisher.ask("publish", count=SAMPLE, window=SAMPLE, **message).answer()
        came = user_program.messages(scene.down_uri, scene.queue, SAMPLE)
        headers = [{*each.headers} - {"x-received-from"} for each in came]
        assert headers == [EXPECTED.get(name, {*OWN})] * SAMPLE, headers[:1]
        with scene.consumer() as consumer:
            meter = Meter(processes)
            consumer.ask("count", count=count)
            publisher.ask("publish", count=count, window=WINDOW, **message).answer()
            consumer.answer()
            spent = meter.spent()["agent"] * MICRO / count
    print(f"  {name}: {spent:.1f} µs", flush=True)
    return spent
