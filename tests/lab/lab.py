"""What a session of tests runs, under one directory and one mark, and the end of it all."""

import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from tests.lab import node, releases
from tests.lab.admin import AdminError
from tests.lab.leftovers import Leftovers
from tests.lab.node import DEFAULT_PLUGINS, Node, NodeError
from tests.lab.ports import Ports
from tests.lab.preloaded import Preloaded
from tests.lab.proxy import Proxy
from tests.lab.store import Store
from tests.lab.waiting import NeverHappenedError, eventually

T = TypeVar("T")

MARK: Final = "FEDERATION_LAB"
MEMORY: Final = Path("/dev/shm")
ROOM: Final = 8 * 1024**3
REAPER_DEADLINE: Final = 120.0  # a busy machine takes half a minute to end 30 brokers and to remove their files
UNREADABLE: Final = (AdminError, NodeError, OSError)
SETTLES: Final = 5.0
"""Seconds in which what a test has removed is gone from what a node shows."""


def _in_memory() -> Path | None:
    """Where what brokers write costs no disk; none where there is little room, as in most containers."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free > ROOM else None
    except OSError:
        return None


class Lab:
    """Makes nodes and proxies; a reaper ends them with the lab, also where its process is killed.

    The workers of a session join the lab of the process that started them, and share its brokers.
    """

    def __init__(self, joined: Path | None = None) -> None:
        self.directory = joined or Path(tempfile.mkdtemp(prefix="federation-lab-", dir=_in_memory()))
        self.ports = Ports(self.directory / "ports")
        self.leftovers = Leftovers()
        self._proxies: list[Proxy] = []
        self._shared: dict[str, Node] = {}
        self._preloaded: Preloaded | None = None
        self._store = Store(self.directory / "shared")
        self._reaper = None if joined else self._start_reaper()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def mark(self) -> dict[str, str]:
        """Give this to the environment of a process, and it ends with the lab."""
        return {MARK: self.directory.name}

    @property
    def group(self) -> str:
        """Of this worker's agents: those of others beside the same broker must not share their links."""
        return f"tests {os.getpid()}"

    def node(
        self,
        name: str = "",
        *,
        release: str | None = None,
        plugins: Iterable[str] = DEFAULT_PLUGINS,
        conf: Iterable[str] = (),
        cluster_name: str = "",
        cookie: str = "",
    ) -> Node:
        """A node that is not started yet; of this machine's release unless another is named."""
        unique = f"{name or 'node'}-{secrets.token_hex(4)}"
        found = releases.find(release)
        return Node(
            name=unique,
            release=found,
            directory=found.directory(self.directory) / unique,
            ports=node.Ports(
                amqp=self.ports.take(kept=True),
                management=self.ports.take(kept=True),
                distribution=self.ports.take(kept=True),
                epmd=self.once("epmd", self._start_epmd),
            ),
            mark=self.mark,
            plugins=tuple(plugins),
            conf=list(conf),
            cluster_name=cluster_name or unique,
            cookie=cookie or secrets.token_hex(),
        )

    def shared(
        self,
        name: str,
        *,
        release: str | None = None,
        plugins: Iterable[str] = DEFAULT_PLUGINS,
        conf: Iterable[str] = (),
        ready: bool = True,
    ) -> Node:
        """A node that all who ask for the same are given, in whichever worker; unless `ready`, it may be booting."""
        key = _key(name, release, plugins, conf)
        if key not in self._shared:
            found = self.once(key, lambda: self.node(name, release=release, plugins=plugins, conf=conf).launch())
            self._shared[key] = replace(found, leftovers=self.leftovers)
        if ready:
            self._shared[key].wait_until_ready()
        return self._shared[key]

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What one worker makes for all."""
        return self._store.once(name, make)

    @contextmanager
    def borrowed(
        self, *, release: str | None = None, plugins: Iterable[str] = DEFAULT_PLUGINS, conf: Iterable[str] = ()
    ) -> Iterator[Node]:
        """A running node for the caller alone, to stop, alarm or change; if it is as before, others get it next."""
        plugins, conf = tuple(plugins), tuple(conf)

        def make() -> Lent:
            return Lent.of(self.node("borrowed", release=release, plugins=plugins, conf=conf).start())

        with self._store.lent(_key("borrowed", release, plugins, conf), make, Lent.is_as_before) as lent:
            yield lent.node

    @property
    def started(self) -> int:
        """How many times a broker was started, in all workers."""
        files = [each / node.STARTED for each in self._directories]
        return sum(len(file.read_text().splitlines()) for file in files if file.exists())

    def proxy(self, target: Node | int) -> Proxy:
        """A proxy before a node's AMQP port or any other; ends with the lab, or when closed."""
        port = target.amqp_port if isinstance(target, Node) else target
        made = Proxy(port, port=self.ports.take(), mark=self.mark)
        self._proxies.append(made)
        return made

    @property
    def agents(self) -> Preloaded:
        """What starts agents, which end with the lab."""
        if self._preloaded is None:
            self._preloaded = Preloaded(self.mark, cwd=releases.PROJECT)
        return self._preloaded

    def close(self) -> None:
        """End all at once; nothing here is worth a graceful stop. A worker that joined ends what is its own."""
        if self._reaper is not None:
            assert self._reaper.stdin
            self._reaper.stdin.close()
            self._reaper.wait(REAPER_DEADLINE)
        if self._preloaded is not None:
            self._preloaded.close()
        for proxy in self._proxies:
            proxy.close()
        self.ports.release()

    def _start_epmd(self) -> int:
        """The port of the lab's own epmd: one that a broker started would outlive it, and serve strangers."""
        port = self.ports.take(kept=True)
        # With -daemon it belongs to no worker, so it is no zombie of one either.
        command = ["epmd", "-daemon", "-address", "127.0.0.1", "-port", str(port)]
        subprocess.run(command, env={**os.environ, **self.mark}, stdin=subprocess.DEVNULL, check=True)
        eventually(lambda: accepts(port), what="epmd listens")
        return port

    @property
    def _directories(self) -> list[Path]:
        return [self.directory, *(each.directory(self.directory) for each in releases.prepared().values())]

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        mark = f"{MARK}={self.directory.name}"
        return subprocess.Popen(
            [sys.executable, "-m", "tests.lab.reaper", mark, str(os.getpid()), *map(str, self._directories)],
            stdin=subprocess.PIPE,
            cwd=releases.PROJECT,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True)
class Lent:
    """A node, and what it was like before it was lent."""

    node: Node
    before: str

    @classmethod
    def of(cls, lent: Node) -> Self:
        return cls(lent, eventually(lent.state, ignoring=UNREADABLE, what="the node shows its state"))

    def is_as_before(self) -> bool:
        """One that isn't is ended: to set it right could miss something."""
        with suppress(NeverHappenedError):
            if self.node.alive:
                self._remove_users()
                return eventually(lambda: self.node.state() == self.before, SETTLES, ignoring=UNREADABLE)
        self.node.kill()
        return False

    def _remove_users(self) -> None:
        """Those of tests, which harm nobody."""
        with suppress(*UNREADABLE):
            for user in self.node.admin.get("users"):
                if f'"name": {json.dumps(user["name"])}' not in self.before:
                    self.node.admin.delete("users", user["name"])


def _key(name: str, release: str | None, plugins: Iterable[str], conf: Iterable[str]) -> str:
    digest = hashlib.sha256(repr((tuple(plugins), tuple(conf))).encode()).hexdigest()
    return f"{name}-{release or 'own'}-{digest[:8]}"


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
