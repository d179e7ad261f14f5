"""Who runs the links: the broker's own plugin, or the agent; never both in one vhost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import yaml

from tests.bench.process import cpu_seconds
from tests.bench.scene import Scene
from tests.lab.waiting import eventually

COMMAND: Final = Path(sys.executable).with_name("federation-agent")
POLICY: Final = "federate"
UPSTREAM: Final = "origin"
PATTERN: Final = "^x"
STOPPED: Final = 30.0
QUIET: Final = 0.5


@dataclass(frozen=True, slots=True)
class Ready:
    """A side that knows the upstream; `go` gives it the policy, and from then on it has links to run.

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
    """rabbitmq_federation in the downstream broker, told by runtime parameter and policy."""

    name = "native"

    @contextmanager
    def ready(self, scene: Scene) -> Iterator[Ready]:
        admin, vhost = scene.pair.down.admin, scene.vhost
        admin.parameter("federation-upstream", vhost, UPSTREAM, {"uri": scene.link_uri})
        definition = {"federation-upstream": UPSTREAM}
        try:
            yield Ready(
                lambda: admin.policy(vhost, POLICY, PATTERN, definition=definition, apply_to="exchanges"), processes={}
            )
        finally:
            admin.delete("parameters", "federation-upstream", vhost, UPSTREAM)


@dataclass(frozen=True, slots=True)
class Agent:
    """`federation-agent run`, told by its file and SIGHUP. `user` is who it is downstream; `port` a proxy before it."""

    name: str = "agent"
    user: str = "guest"
    port: int | None = None

    @contextmanager
    def ready(self, scene: Scene) -> Iterator[Ready]:
        path = scene.pair.lab.directory / f"{scene.vhost}.yaml"
        path.write_text(self._configuration(scene, federates=False))
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
            eventually(lambda: _is_quiet(process.pid), STOPPED, what="the agent has started and is quiet")

            def go() -> None:
                path.write_text(self._configuration(scene, federates=True))
                process.send_signal(signal.SIGHUP)

            yield Ready(go, processes={"agent": process.pid})
        except BaseException:
            print(f"the agent's log ends with:\n{log.read_text(errors='replace')[-2000:]}", flush=True)
            raise
        finally:
            _stop(process)

    def _configuration(self, scene: Scene, *, federates: bool) -> str:
        down = scene.pair.down
        policy = {"pattern": PATTERN, "apply-to": "exchanges", "definition": {"federation-upstream": UPSTREAM}}
        of_vhost = {
            "upstreams": {UPSTREAM: {"uri": scene.link_uri}},
            "policies": {POLICY: policy} if federates else {},
        }
        return yaml.safe_dump(
            {
                "agent": {"http": {"listen": f"127.0.0.1:{scene.pair.agent_port}"}},
                "downstream": {
                    "uri": down.uri(user=self.user, password=self.user, port=self.port),
                    "management": down.management_uri(self.user, self.user),
                },
                "definitions": {"management": False},
                "vhosts": {scene.vhost: of_vhost},
            }
        )


@contextmanager
def running(scene: Scene, side: Side) -> Iterator[Mapping[str, int]]:
    """A link that messages pass; the processes that it takes besides the brokers."""
    with side.ready(scene) as ready:
        ready.start()
        scene.wait_for_flow()
        yield ready.processes


def _is_quiet(pid: int) -> bool:
    """It has read everything and waits: no CPU for a while, after some."""
    before = cpu_seconds(pid)
    time.sleep(QUIET)
    return 0.2 < before == cpu_seconds(pid)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOPPED)
    except subprocess.TimeoutExpired:
        print(f"the agent does not stop within {STOPPED:g} s: killed", flush=True)
        process.kill()
        process.wait()
