"""A TCP proxy that a test orders to be a bad network."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.lab.waiting import DEADLINE

RELAY: Final = Path(__file__).with_name("relay.py")


class ProxyError(Exception):
    """The proxy's process is gone."""


class Proxy:
    """Relays 127.0.0.1:`port` to 127.0.0.1:`target_port`, in a process of its own so that tests don't slow it."""

    def __init__(self, target_port: int, *, port: int = 0, mark: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RELAY), f"--port={port}", f"--target={target_port}"],
            env={**os.environ, **(mark or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port: int = self._read()["port"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self, *, reset: bool = True) -> None:
        """End all connections now, with RST or else FIN; new ones are served."""
        self._order("cut", reset)

    def refuse(self) -> None:
        """Refuse new connections, as a host does where nobody listens."""
        self._order("refuse")

    def accept(self) -> None:
        """Undo `refuse`."""
        self._order("accept")

    def delay(self, seconds: float) -> None:
        """Let each byte travel that long, each way; throughput stays. Connecting itself is not delayed."""
        self._order("delay", seconds)

    def throttle(self, bytes_per_second: float | None) -> None:
        """Share out that much, each way, among all connections; None is without limit."""
        self._order("throttle", bytes_per_second)

    def blackhole(self) -> None:
        """Let nothing pass in silence: connections stay, new ones are taken, what is sent waits."""
        self._order("hold", True)

    def garble(self, garbled: bool) -> None:
        """Make garbage of each byte that comes from the target, or no more."""
        self._order("garble", garbled)

    def restore(self) -> None:
        """Undo `blackhole`; what waited passes."""
        self._order("hold", False)

    @property
    def connections(self) -> int:
        """How many are open now."""
        return self._order("count")["connections"]

    @property
    def accepted(self) -> int:
        """How many there were in all."""
        return self._order("count")["accepted"]

    @property
    def bytes_up(self) -> int:
        """What passed to the target."""
        return self._order("count")["bytes_up"]

    @property
    def bytes_down(self) -> int:
        """What passed from the target."""
        return self._order("count")["bytes_down"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe and not pipe.closed:
                pipe.close()

    def _order(self, do: str, value: object = None) -> dict[str, int]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": do, "value": value}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ProxyError(f"the proxy ended: {self._process.wait(DEADLINE)}") from error
        return self._read()

    def _read(self) -> dict[str, int]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise ProxyError(f"the proxy ended: {self._process.wait(DEADLINE)}")
        answer: dict[str, int] = json.loads(line)
        return answer
