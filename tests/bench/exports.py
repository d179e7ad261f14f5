"""Status exports of a fleet by the million lines, as agents write them: what differs from line to line is put in."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Final

from agent.core.export_event import FIELDS, SCHEMA

START: Final = datetime(2026, 3, 2, tzinfo=UTC)
INTERVAL: Final = 10
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0)
STEPS_PER_FILE: Final = 360  # an hour
FAILS: Final = 0.001

_HEAD: Final = '"type":"%b","ts":"%b.%06dZ","seq":%d,'
_COUNTS: Final = ",".join(["%d"] * (len(BOUNDS) + 1))


@dataclass(frozen=True, slots=True)
class Export:
    """`agents` of `each` links; `skewed` gives the first agent's first link a third of all lines. A file has so many
    steps of an agent, of ten seconds each."""

    agents: int
    each: int
    lines: int
    skewed: bool = False
    steps_per_file: int = STEPS_PER_FILE

    @property
    def steps(self) -> int:
        return self.lines // (self.agents * (self.each + 1))

    def write(self, directory: Path) -> int:
        """Answers how many lines there are."""
        with ProcessPoolExecutor(max_workers=2) as workers:
            return sum(workers.map(_write_agent, repeat(self), repeat(directory), range(self.agents)))


def _write_agent(export: Export, directory: Path, agent: int) -> int:
    chance, written = random.Random(agent), 0
    lines = _AgentLines(f"agent-{agent}", export.each, chance)
    extra = round(export.agents * (export.each + 1) / 2) if export.skewed and agent == 0 else 0
    for first in range(0, export.steps, export.steps_per_file):
        moment = START + timedelta(seconds=first * INTERVAL)
        folder = directory / f"date={moment:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"agent-{agent}-20260302T000000.000000Z-{first:06}.jsonl").open("wb", 2**20) as file:
            for step in range(first, min(first + export.steps_per_file, export.steps)):
                told = [*lines.of_step(step, extra)]
                file.write(b"".join(told))
                written += len(told)
    return written


class _AgentLines:
    def __init__(self, agent: str, each: int, chance: random.Random) -> None:
        self._chance = chance
        self._seq = 0
        self._own = _template(agent, None)
        self._links = [_template(agent, number) for number in range(each)]
        self._passed = [0] * each
        self._busy = [number % 4 != 0 for number in range(each)]  # a fleet has quiet links
        self._failed: set[int] = set()

    def of_step(self, step: int, extra: int) -> Iterator[bytes]:
        second = (START + timedelta(seconds=step * INTERVAL)).isoformat()[:19].encode()
        self._seq += 1
        yield self._own % (b"agent", second, 0, self._seq, b"heartbeat" if step else b"started")
        for link in range(len(self._links)):
            before, micro = link in self._failed, 1000 * link + 1
            if self._chance.random() < (0.2 if before else FAILS):
                self._failed ^= {link}
                yield self._line(link, b"transition", second, micro)
            elif not before and self._busy[link]:
                self._passed[link] += self._chance.randrange(2000)
            yield self._line(link, b"sample", second, micro + 100)
        for number in range(extra):
            self._passed[0] += 1
            yield self._line(0, b"sample", second, 500_000 + number)

    def _line(self, link: int, kind: bytes, second: bytes, micro: int) -> bytes:
        self._seq += 1
        status = b"backoff" if link in self._failed else b"running"
        passed = self._passed[link]
        counts = (0, 0, passed // 2, passed - passed // 10, *repeat(passed, len(BOUNDS) - 3))
        return self._links[link] % (kind, second, micro, self._seq, status, passed, 512 * passed, passed, *counts)


def _template(agent: str, link: int | None) -> bytes:
    told = dict.fromkeys(FIELDS) | {"schema": SCHEMA, "agent": agent, "group": agent, "cluster": f"here-{agent}"}
    told |= {"type": "%b", "ts": "%b.%06dZ", "status": "%b", "seq": "%d"}
    if link is None:
        told |= {"interval": float(INTERVAL)}
    else:
        told |= {"link": f"{link:08x}", "kind": "exchange", "vhost": "/", "name": f"orders.{link}", "reason": "resumed"}
        told |= {"upstream": f"origin-{link % 3}", "upstream_name": f"orders.{link}", "upstream_cluster": "there"}
        told |= {"uri": f"amqps://broker-{link % 3}.example:5671/%%2F", "forwarded": "%d", "bytes": "%d", "taken": "%d"}
        told |= dict.fromkeys(("redelivered", "dropped", "quarantined", "returned", "reconnects"), 0)
        told |= {"given_back": 0, "unsettled": 0, "blocked_seconds": 0.0, "backlog": 0, "in_flight": 0, "bindings": 3}
        told |= {"transfer": {"le": BOUNDS, "count": "COUNTS", "sum": 1.5}}
    text = json.dumps(told, separators=(",", ":")).replace('"%d"', "%d").replace('"COUNTS"', f"[{_COUNTS}]")
    return text.encode() + b"\n"
