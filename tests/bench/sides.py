"""Who runs the links: the broker's own plugin, or the agent; never both in one vhost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import yaml

from tests.bench.process import cpu_seconds
from tests.bench.scene import Scene
from tests.lab.waiting import eventually

COMMAND: Final = Path(sys.executable).with_name("federation-agent")
STOPPED: Final = 30.0
QUIET: Final = 0.5


@dataclass(frozen=True, slots=True)
class Ready:
    """A side that is prepared; `go` gives it what its links follow from, and from then on it has links to run.

    `processes` are those that it has besides the brokers.
    """

    go: Callable[[], None]
    processes: Mapping[str, int]

    def start(self) -> float:
        """Goes; when."""
        began = time.monotonic()
        self.go()
        return began


class Side(Protocol):
    @property
    def name(self) -> str: ...

    def ready(self, scene: Scene) -> AbstractContextManager[Ready]: ...


class Native:
    """The plugins in the downstream broker, which get runtime parameters and policies."""

    name = "native"

    @contextmanager
    def ready(self, scene: Scene) -> Iterator[Ready]:
        scene.work.define(scene)
        try:
            yield Ready(lambda: scene.work.begin(scene), processes={})
        finally:
            scene.work.remove(scene)


@dataclass(frozen=True, slots=True)
class Agent:
    """`federation-agent run`, told by its file and SIGHUP. `user` is who it is downstream; `port` a proxy before it.
    `replicas` agents of one group share the links.
    """

    name: str = "agent"
    user: str = "guest"
    port: int | None = None
    replicas: int = 1

    @contextmanager
    def ready(self, scene: Scene) -> Iterator[Ready]:
        with ExitStack() as started:
            found = [started.enter_context(self._one(scene, number)) for number in range(self.replicas)]

            def go() -> None:
                for each in found:
                    each.go()

            names = ["agent", *(f"agent {number}" for number in range(2, self.replicas + 1))]
            yield Ready(
                go, {name: pid for name, each in zip(names, found, strict=True) for pid in each.processes.values()}
            )

    @contextmanager
    def _one(self, scene: Scene, number: int) -> Iterator[Ready]:
        path = scene.pair.lab.directory / f"{scene.vhost}-{number}.yaml"
        port = scene.pair.agent_port if number == 0 else scene.pair.lab.ports.take()
        path.write_text(self.configuration(scene, port, begins=False))
        log = path.with_suffix(".log")
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [COMMAND, "run", "-c", path],
                env={**os.environ, **scene.pair.lab.mark},
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        try:
            eventually(lambda: is_quiet(process.pid), STOPPED, what="the agent has started and is quiet")

            def go() -> None:
                path.write_text(self.configuration(scene, port, begins=True))
                process.send_signal(signal.SIGHUP)

            yield Ready(go, processes={"agent": process.pid})
        except BaseException:
            print(f"the agent's log ends with:\n{log.read_text(errors='replace')[-2000:]}", flush=True)
            raise
        finally:
            stop(process)

    def configuration(self, scene: Scene, port: int, *, begins: bool) -> str:
        down = scene.pair.down
        return yaml.safe_dump(
            {
                "agent": {"name": f"agent at {port}", "http": {"listen": f"127.0.0.1:{port}"}},
                "downstream": {
                    "uri": down.uri(user=self.user, password=self.user, port=self.port),
                    "management": down.management_uri(self.user, self.user),
                },
                "definitions": {"management": False},
                "vhosts": {scene.vhost: scene.work.of_vhost(scene, begins=begins)},
            }
        )


@contextmanager
def running(scene: Scene, side: Side) -> Iterator[Mapping[str, int]]:
    """A link that messages pass; the processes that it takes besides the brokers."""
    with side.ready(scene) as ready:
        ready.start()
        scene.wait_for_flow()
        yield ready.processes


def is_quiet(pid: int) -> bool:
    """It has read everything and waits: no CPU for a while, after some."""
    before = cpu_seconds(pid)
    time.sleep(QUIET)
    return 0.2 < before == cpu_seconds(pid)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOPPED)
    except subprocess.TimeoutExpired:
        print(f"the agent does not stop within {STOPPED:g} s: killed", flush=True)
        process.kill()
        process.wait()
