"""Workers: processes that publish, consume and watch, so that nothing of it slows what is measured."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from tests.lab.releases import PROJECT

READY: Final = 30.0
PATIENCE: Final = 120.0
# Enough unconfirmed messages to keep a broker busy.
WINDOW: Final = 2_000


class WorkerError(Exception):
    """A worker ended, or did not answer in time."""


class Worker:
    """`ask` and `answer` apart, so that several work at once."""

    def __init__(self, kind: str, *arguments: str, mark: Mapping[str, str]) -> None:
        self._what = " ".join([kind, *arguments])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.worker", kind, *arguments],
            env={**os.environ, **mark},
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.answer(READY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()

    def ask(self, do: str, **told: object) -> Self:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **told}).encode() + b"\n")
        self._process.stdin.flush()
        return self

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], patience)[0]:
            self._process.kill()
            raise WorkerError(f"{self._what}: no answer within {patience:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self._what}: ended with {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told
