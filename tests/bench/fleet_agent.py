"""A process of the agent for a fleet of links: started, configured, asked, restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.bench.scene import Pair
from tests.bench.sides import COMMAND, stop
from tests.lab.waiting import eventually

STARTED: Final = 60.0
ASKED_WITHIN: Final = 120.0
AWAY: Final = OSError
END_OF_EVENT: Final = b"\n\n"


class FleetAgent:
    """`tell` writes the configuration that it starts with, or reads again if it runs."""

    def __init__(self, pair: Pair, name: str, number: int) -> None:
        self._pair = pair
        self.port = pair.agent_port if number == 0 else pair.lab.ports.take()
        self._path = pair.lab.directory / f"{name}-{number}.yaml"
        self.tell({})
        self._process = self._start()

    def __enter__(self) -> Self:
        eventually(lambda: self._get("/readyz"), STARTED, what="the agent is ready", ignoring=AWAY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"the agent's log ends with:\n{self.log.read_text(errors='replace')[-2000:]}", flush=True)
        stop(self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._path.with_suffix(".log")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tell(self, vhosts: Mapping[str, Any]) -> None:
        down = self._pair.down
        settings = {
            "agent": {"name": f"agent at {self.port}", "http": {"listen": f"127.0.0.1:{self.port}"}},
            "downstream": {"uri": down.uri(), "management": down.management_uri()},
            "definitions": {"management": False},
            "vhosts": vhosts,
        }
        self._path.write_text(yaml.safe_dump(settings))

    def reload(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def restart(self) -> None:
        stop(self._process)
        self._process = self._start()

    def running(self) -> int:
        """How many links run here; none while the agent doesn't answer."""
        try:
            found: int = self._get_json("/api/overview")["links"]["running"]
        except AWAY:
            return 0
        return found

    def asked(self, path: str) -> tuple[float, int]:
        """How long an answer takes, and how many bytes it has."""
        began = time.monotonic()
        size = len(self._get(path))
        return time.monotonic() - began, size

    def first_event(self) -> float:
        """How long the page waits for its links."""
        began, found = time.monotonic(), b""
        with urllib.request.urlopen(f"{self.url}/api/events", timeout=ASKED_WITHIN) as answer:
            while found.count(END_OF_EVENT) < 2:  # how soon to come again, and the links
                found += answer.read1(2**20)
        return time.monotonic() - began

    def command(self, name: str) -> float:
        """How long one of the agent's commands takes."""
        began = time.monotonic()
        subprocess.run([COMMAND, name, "--url", self.url], stdout=subprocess.DEVNULL, timeout=ASKED_WITHIN, check=False)
        return time.monotonic() - began

    def _get_json(self, path: str) -> Any:
        return json.loads(self._get(path))

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=ASKED_WITHIN) as answer:
            text: bytes = answer.read()
            return text

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [COMMAND, "run", "-c", self._path],
                env={**os.environ, **self._pair.lab.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
