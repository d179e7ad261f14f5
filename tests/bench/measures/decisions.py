"""What needs no broker: resolving a large cluster, and a small file's `validate`; `SECONDS name value`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from agent.core.addresses.uri import parse
from agent.core.model import (
    ApplyTo,
    Choice,
    Definitions,
    Exchange,
    Federation,
    LinkSettings,
    Policy,
    Upstream,
    VhostDefinitions,
    VhostState,
)
from agent.core.rules.resolve import resolve
from agent.errors import Place

RUNS: Final = 5
COMMAND: Final = str(Path(sys.executable).with_name("federation-agent"))


def timed(work: Callable[[], object]) -> list[float]:
    seconds = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return seconds


def large_cluster() -> tuple[Definitions, dict[str, VhostState]]:
    """2,000 exchanges, 50 upstreams, 200 policies, of which only the last one matches: 100,000 links."""
    here = Place("bench")
    federation = Federation(Choice.SET, "all")
    settings = LinkSettings(max_hops=2)
    upstreams = {f"u{i}": Upstream(f"u{i}", (parse(f"amqp://h{i}"),), here, settings) for i in range(50)}
    patterns = [*(f"^x{i}\\.[a-z]+$" for i in range(199)), "^orders-"]
    policies = {
        f"p{i}": Policy(f"p{i}", pattern, ApplyTo.EXCHANGES, -i, federation, here) for i, pattern in enumerate(patterns)
    }
    exchanges = {f"orders-{i}": Exchange(f"orders-{i}", "topic") for i in range(2000)}
    return Definitions({"/": VhostDefinitions(upstreams=upstreams, policies=policies)}), {"/": VhostState(exchanges)}


def print_decisions() -> None:
    definitions, states = large_cluster()
    found = {"resolve-2000x50x200": timed(lambda: resolve(definitions, states))}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "agent.yaml"
        path.write_text("downstream: {uri: amqp://127.0.0.1}\nupstreams: {origin: {uri: amqp://h}}\n")
        command = [COMMAND, "validate", "-c", str(path)]
        found["validate-small-file"] = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    for name, seconds in found.items():
        print(f"{name}: median {median(seconds):.3f} s, lowest {min(seconds):.3f} s, highest {max(seconds):.3f} s")
    for name, seconds in found.items():
        print(f"SECONDS {name} {median(seconds):.3f}")
