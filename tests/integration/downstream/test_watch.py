"""A watching process, with real files, a real SIGHUP and a real broker."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Borrowed
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.releases import PROJECT
from tests.lab.waiting import DEADLINE, eventually

Proxies = Callable[[Node | int], Proxy]


class Process:
    """A watcher in a process of its own, and the lines that it has printed."""

    def __init__(self, document: Path, uri: str, mark: dict[str, str]) -> None:
        self.document = document
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.definitions.watching", str(document), uri],
            cwd=PROJECT,
            env={**os.environ, **mark},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def hangup(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def since(self, mark: int) -> list[str]:
        return self.lines[mark:]

    def told(self, *words: str, since: int = 0, deadline: float = DEADLINE) -> str:
        """The first line after `since` that has all of the words."""

        def found() -> str | None:
            return next((line for line in self.lines[since:] if all(word in line for word in words)), None)

        return eventually(found, deadline, what=f"{words} in {self.lines[since:]}") or ""

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout:
            for line in self._process.stdout:
                self.lines.append(line.strip())


@pytest.fixture
def broker(borrowed: Borrowed) -> Node:
    """One of whose events none comes from another test."""
    return borrowed()


@pytest.fixture
def proxy(broker: Node, proxy_to: Proxies) -> Proxy:
    return proxy_to(broker)


@pytest.fixture
def process(lab: Lab, broker: Node, proxy: Proxy, tmp_path: Path) -> Iterator[Process]:
    (tmp_path / "..v1").mkdir()
    (tmp_path / "..v1" / "agent.yaml").write_text("first")
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "agent.yaml").symlink_to("..data/agent.yaml")
    process = Process(tmp_path / "agent.yaml", broker.uri(port=proxy.port), lab.mark)
    try:
        process.told("hearing")
        process.told("reload", "event")
        yield process
    finally:
        process.stop()


def test_what_makes_it_read_the_definitions(
    vhost: str, process: Process, broker: Node, proxy: Proxy, tmp_path: Path
) -> None:
    """The start, SIGHUP, a file that is written, a config map that turns, events of the broker however many, and polls
    while none come."""
    assert "reload start first" in process.lines

    mark = len(process.lines)
    process.hangup()
    assert process.told("reload", "hangup", since=mark) == "reload hangup first"

    mark = len(process.lines)
    process.document.write_text("second")
    assert process.told("file", since=mark) == "reload file second"

    mark = len(process.lines)
    (tmp_path / "..v2").mkdir()
    (tmp_path / "..v2" / "agent.yaml").write_text("turned")
    (tmp_path / "..data_tmp").symlink_to("..v2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert process.told("file", since=mark) == "reload file turned"

    mark = len(process.lines)
    broker.admin.policy(vhost, "p", "^x", definition={"max-length": 1})
    process.told("reload", "event", since=mark)

    mark, begun = len(process.lines), time.monotonic()
    for number in range(150):
        broker.admin.exchange(vhost, f"x{number}", durable=False)
    process.document.write_text("over")
    process.told("reload", "over", since=mark)
    assert 1 <= len(process.since(mark)) < 30 + 3 * (time.monotonic() - begun), "a storm makes few reloads"

    mark = len(process.lines)
    proxy.refuse()
    proxy.cut()
    process.told("error TransientError", since=mark)
    process.told("reload", "poll", since=mark)
    proxy.accept()
    process.told("hearing", since=mark)
