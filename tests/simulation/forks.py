"""Runs seeds in processes that are forked from one which has imported all of the agent.

Importing takes as long as ten seeds. A run needs a process of its own where it changes the agent's code, as those do
that take a safeguard out, and the one that forks needs its own because its clocks are simulated.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from tests.lab.waiting import DEADLINE
from tests.simulation.clocks import simulate_clocks

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Seeds:
    """Which seeds run, and what they depend on besides themselves."""

    first: int = 0
    count: int = 1
    slots: int = 0
    """So many leases, as fewer are faster; 0: the agent's own."""
    without: str | None = None
    """A safeguard: see `safeguards.py`."""
    seconds: float = 0.0
    """No seed begins after so much CPU time; 0: no limit."""
    until_failure: bool = False

    def replayed(self, seed: int) -> str:
        """The command that runs this one again."""
        given = [f"--slots {self.slots}"] if self.slots else []
        given += [f"--without {self.without}"] if self.without else []
        return f"make simulate SEED={seed}" + (f" ARGS='{' '.join(given)}'" if given else "")


@dataclass(frozen=True, slots=True)
class Found:
    """What became of them."""

    ran: int
    failed: dict[int, list[str]]
    reached: frozenset[str]
    digests: dict[int, str]
    effort: float
    """Seconds of CPU time."""

    def as_json(self) -> str:
        return json.dumps(asdict(self) | {"reached": sorted(self.reached)})

    @classmethod
    def of_json(cls, text: str) -> Self:
        told: dict[str, Any] = json.loads(text)
        by_seed = {key: {int(seed): what for seed, what in told[key].items()} for key in ("failed", "digests")}
        return cls(**told | by_seed | {"reached": frozenset(told["reached"])})


class RunFailedError(Exception):
    """A process ended before it told what it found; standard error has why."""


class Forks:
    """The process that forks one for each run; `mark` is in the environment of all of them."""

    def __init__(self, mark: Mapping[str, str]) -> None:
        self._mark = mark
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.forks"],
            cwd=ROOT,
            env={**os.environ, **self._mark, "PYTHONHASHSEED": "0"},  # sets of strings are ordered by it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.kill()
        self._process.wait(DEADLINE)
        self._process.stdin.close()
        self._process.stdout.close()

    def run(self, *asked: Seeds) -> list[Found]:
        """All of them side by side."""
        try:
            return self._ask(asked)
        except BaseException:  # what it still says would be taken for the answer to the next question
            self._end()
            self._process = self._start()
            raise

    def _ask(self, asked: Sequence[Seeds]) -> list[Found]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([asdict(each) for each in asked]) + "\n")
        self._process.stdin.flush()
        found = [self._process.stdout.readline() for _ in asked]
        if "" in (line.strip() for line in found):
            raise RunFailedError(f"one of {asked}")
        return [Found.of_json(line) for line in found]


def _main() -> None:
    """Until nobody asks any more. Time is virtual here: others, in whose tests it is real, have the cores first."""
    os.nice(10)
    simulate_clocks()
    from tests.simulation import safeguards, seeds  # noqa: F401 - all that a run needs is here when it begins

    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        for pid, told in [_fork(Seeds(**each)) for each in json.loads(line)]:
            with os.fdopen(told) as lines:
                print(lines.read(), flush=True)
            os.waitpid(pid, 0)


def _fork(asked: Seeds) -> tuple[int, int]:
    """The process, and where it tells what it found."""
    told, telling = os.pipe()
    pid = os.fork()
    if not pid:
        _run(asked, telling)
    os.close(telling)
    return pid, told


def _run(asked: Seeds, telling: int) -> NoReturn:
    from tests.simulation.seeds import run

    status = 1
    try:
        with os.fdopen(telling, "w") as file:
            file.write(run(asked).as_json())
        status = 0
    except BaseException:  # noqa: BLE001 - it ends the process
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _main()
