"""What was measured, as a table for people and lines for programs."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

COLUMNS: Final = ("measure", "unit", "native", "agent", "ratio", "target", "reached")


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the ratio, agent over native, or on the agent's own value."""

    at_least: float | None = None
    at_most: float | None = None
    of_agent: bool = False

    def reached(self, ratio: float | None, agent: float) -> bool | None:
        value = agent if self.of_agent else ratio
        if value is None:
            return None
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        bound = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        return f"agent {bound}" if self.of_agent else f"ratio {bound}"


@dataclass(slots=True)
class Measure:
    """One quantity of both sides, run by run; `note` is what a reader has to know about it.

    Growth may be nothing or less, so there `compared` is false: a ratio would say nothing.
    """

    name: str
    unit: str
    targets: tuple[Target, ...] = ()
    digits: int = 2
    note: str = ""
    compared: bool = True
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, side: str, value: float) -> None:
        self.values.setdefault(side, []).append(value)

    def median(self, side: str) -> float | None:
        found = self.values.get(side)
        return median(found) if found else None

    @property
    def ratio(self) -> float | None:
        native, agent = self.median("native"), self.median("agent")
        return agent / native if self.compared and agent is not None and native else None

    def row(self) -> tuple[str, ...]:
        ratio, agent = self.ratio, self.median("agent")
        reached = [] if agent is None else [target.reached(ratio, agent) for target in self.targets]
        return (
            self.name,
            self.unit,
            self._spread("native"),
            self._spread("agent"),
            "-" if ratio is None else f"{ratio:.2f}",
            ", ".join(map(str, self.targets)) or "-",
            ", ".join({True: "yes", False: "NO", None: "-"}[each] for each in reached) or "-",
        )

    def _spread(self, side: str) -> str:
        """Lowest, median, highest."""
        found = self.values.get(side)
        if not found:
            return "-"
        return " / ".join(f"{value:.{self.digits}f}" for value in (min(found), median(found), max(found)))


def machine(*releases: str) -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(models)} cores, Linux {platform.release()}, RabbitMQ {' and '.join(sorted(set(releases)))}"


def print_table(measures: Sequence[Measure]) -> None:
    """Values are lowest / median / highest; the ratio is that of the medians, agent over native."""
    rows = [COLUMNS, *(measure.row() for measure in measures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for measure in measures:
        if measure.note:
            print(f"* {measure.name}: {measure.note}")


def print_lines(measures: Iterable[Measure]) -> None:
    """For programs; the ratios come last."""
    for measure in measures:
        if measure.ratio is None and (agent := measure.median("agent")) is not None:
            print(f"AGENT {measure.name} {agent:.3f}")
    for measure in measures:
        if (ratio := measure.ratio) is not None:
            print(f"RATIO {measure.name} {ratio:.3f}")
