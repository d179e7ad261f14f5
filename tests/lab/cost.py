"""CPU time by kind of process, of a machine on which tests run."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

EVERY: Final = 0.5
"""Seconds between two samples: what a process uses after its last one isn't seen."""
TICKS: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")
KINDS: Final = {
    "brokers": ("beam.smp",),
    "Java": ("java",),
    "Chromium": ("chromium",),
    "simulation": ("tests.simulation",),
    "agents": ("tests.lab.preloaded", "federation-agent"),
    "proxies": ("relay.py",),
    "pytest": ("pytest", "exec(eval(sys.stdin"),  # a worker of xdist is started as code
}
"""By words in the command line; the first that fits."""
Process = tuple[str, str]
"""Its id, and when it began: ids come again."""
OTHERS: Final = "other, and shorter than a sample"


@dataclass
class Costs:
    """Samples every process until it is asked; brokers outlive the workers that started them."""

    _begun: float
    _used: dict[Process, tuple[str, float]] = field(default_factory=dict)
    _before: dict[Process, float] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def counting(cls) -> Self:
        made = cls(_busy())
        made._before.update({process: used for process, _, used in _processes()})
        threading.Thread(target=made._sample_until_the_end, daemon=True).start()
        return made

    def lines(self) -> list[str]:
        self._ends.set()
        self._sample()
        total = _busy() - self._begun
        by_kind: dict[str, float] = defaultdict(float)
        for kind, used in self._used.values():
            by_kind[kind] += used
        by_kind[OTHERS] += max(0.0, total - sum(by_kind.values()))
        ordered = sorted(by_kind.items(), key=lambda each: -each[1])
        return [f"CPU: {total:.0f} s", *(f"{used:7.0f} s {used / total:4.0%} {kind}" for kind, used in ordered)]

    def _sample_until_the_end(self) -> None:
        while not self._ends.wait(EVERY):
            self._sample()

    def _sample(self) -> None:
        for process, words, used in _processes():
            kind = next((kind for kind, signs in KINDS.items() if any(sign in words for sign in signs)), OTHERS)
            if not words and process in self._used:  # it has ended, and nobody has waited for it yet
                kind = self._used[process][0]
            self._used[process] = (kind, used - self._before.get(process, 0.0))


def _processes() -> list[tuple[Process, str, float]]:
    """Each with its command line and CPU seconds."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_text(errors="replace")
                numbers = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if not numbers:  # of one that ended between two reads
                continue
            found.append(((folder.name, numbers[19]), words, (int(numbers[11]) + int(numbers[12])) / TICKS))
    return found


def _busy() -> float:
    """CPU seconds of the machine that weren't idle, since it began."""
    user, nice, system, _, _, irq, softirq = (PROC / "stat").read_text().split("\n", 1)[0].split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / TICKS
