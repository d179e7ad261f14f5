"""What processes cost, as the kernel tells it in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS: Final = os.sysconf("SC_CLK_TCK")
ESTABLISHED: Final = "01"


def cpu_seconds(pid: int) -> float:
    """User and system time since the process began."""
    told = (PROC / str(pid) / "stat").read_text()
    # The command stands in parentheses and may hold spaces; fields count from behind it.
    values = told[told.rindex(")") + 2 :].split()
    return (int(values[11]) + int(values[12])) / TICKS


def wake_ups(pid: int) -> int:
    """How often its main thread has waited, and gone on, since the process began."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise LookupError(f"process {pid} shows no context switches")


def memory_mib(pid: int, *, peak: bool = False) -> float:
    """Resident memory, or the most of it there ever was."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} tells no {wanted}")


def connections_to(ports: Iterable[int]) -> int:
    """Established TCP connections whose far end is one of the ports of this machine."""
    wanted = {f"{port:04X}" for port in ports}
    lines = (PROC / "net" / "tcp").read_text().splitlines()[1:]
    columns = (line.split() for line in lines)
    return sum(column[3] == ESTABLISHED and column[2].split(":")[1] in wanted for column in columns)


class Meter:
    """CPU seconds by name, from its making on."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = dict(processes)
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        return {name: now - self._before[name] for name, now in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._processes.items()}
