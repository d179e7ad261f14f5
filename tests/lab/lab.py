"""What a session of tests runs, under one directory and one mark, and the end of it all."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.lab import node, releases
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.ports import Ports
from tests.lab.preloaded import Preloaded
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

MARK: Final = "FEDERATION_LAB"
REAPER_DEADLINE: Final = 20.0


class Lab:
    """Makes nodes and proxies; a reaper ends them with the lab, also where this process is killed."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="federation-lab-"))
        self.ports = Ports()
        self._nodes: list[Node] = []
        self._proxies: list[Proxy] = []
        self._shared: dict[tuple[str | None, tuple[str, ...], str], Node] = {}
        self._preloaded: Preloaded | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port = 0
        self._reaper = self._start_reaper()

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
        made = Node(
            name=unique,
            release=found,
            directory=found.directory(self.directory) / unique,
            ports=node.Ports(self.ports.take(), self.ports.take(), self.ports.take(), self._running_epmd()),
            mark=self.mark,
            plugins=tuple(plugins),
            conf=list(conf),
            cluster_name=cluster_name or unique,
            cookie=cookie or secrets.token_hex(),
        )
        self._nodes.append(made)
        return made

    def shared(self, name: str, *, release: str | None = None, plugins: Iterable[str] = DEFAULT_PLUGINS) -> Node:
        """A running node that all who ask for the same are given."""
        plugins = tuple(plugins)
        if (release, plugins, name) not in self._shared:
            self._shared[release, plugins, name] = self.node(name, release=release, plugins=plugins).start()
        return self._shared[release, plugins, name]

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
        """End all at once; nothing here is worth a graceful stop."""
        if self._reaper.stdin:
            self._reaper.stdin.close()
        self._reaper.wait(REAPER_DEADLINE)
        if self._preloaded is not None:
            self._preloaded.close()
        for proxy in self._proxies:
            proxy.close()
        for made in self._nodes:
            made.kill()
        if self._epmd is not None:
            self._epmd.wait(REAPER_DEADLINE)
        self.ports.release()

    def _running_epmd(self) -> int:
        """The port of the lab's own epmd: one that a broker started would outlive it, and serve strangers."""
        if self._epmd is None:
            port = self.ports.take()
            self._epmd = subprocess.Popen(
                ["epmd", "-address", "127.0.0.1", "-port", str(port)],
                env={**os.environ, **self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            eventually(lambda: accepts(port), what="epmd listens")
            self._epmd_port = port
        return self._epmd_port

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        directories = [self.directory, *(each.directory(self.directory) for each in releases.prepared().values())]
        mark = f"{MARK}={self.directory.name}"
        return subprocess.Popen(
            [sys.executable, "-m", "tests.lab.reaper", mark, str(os.getpid()), *map(str, directories)],
            stdin=subprocess.PIPE,
            cwd=releases.PROJECT,
            start_new_session=True,
        )


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
