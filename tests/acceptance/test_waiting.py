"""`run --wait-for-configuration`: what a sidecar does beside its broker while its file isn't valid."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.acceptance.command import federation_agent
from tests.lab.lab import Lab, accepts
from tests.lab.preloaded import Started
from tests.lab.waiting import DEADLINE, eventually

OPTION: Final = "--wait-for-configuration"
REFUSED, WAITING, STARTED = "configuration refused", "waiting for a valid configuration", "started"


class Sidecar:
    """One agent, and the port that its probes ask."""

    def __init__(self, folder: Path, lab: Lab, host: str) -> None:
        self.folder, self.lab, self.host = folder, lab, host
        self.port = lab.ports.take()
        self.path, self.log = folder / "agent.yaml", folder / "log"
        self.process: Started | None = None

    def start(self) -> Sidecar:
        arguments = ["run", "-c", str(self.path), OPTION, f"{self.host}:{self.port}"]
        self.process = self.lab.agents.start(arguments, output=self.log)
        return self

    def write(self, text: str) -> None:
        written = self.path.with_suffix(".new")
        written.write_text(text)
        written.replace(self.path)

    def valid(self) -> str:
        listen = {"http": {"listen": f"127.0.0.1:{self.port}"}}
        uri = f"amqp://127.0.0.1:{self.lab.ports.take()}"  # of a broker that is away
        return yaml.safe_dump({"agent": listen, "downstream": {"uri": uri}, "exchanges": {"x": {"type": "topic"}}})

    def look_again(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGHUP)

    def lines(self, event: str) -> list[dict[str, Any]]:
        whole = self.log.read_text().rpartition("\n")[0]
        return [found for found in map(json.loads, whole.splitlines()) if found["event"] == event]

    def wait(self, event: str, times: int = 1) -> None:
        eventually(lambda: len(self.lines(event)) >= times, what=f"{event!r} in {self.log.read_text()}")

    def ask(self, path: str) -> tuple[int, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def stop(self) -> int:
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


@pytest.fixture
def sidecar(tmp_path: Path, lab: Lab) -> Iterator[Callable[..., Sidecar]]:
    made: list[Sidecar] = []

    def make(host: str = "127.0.0.1") -> Sidecar:
        made.append(Sidecar(tmp_path, lab, host))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.process.send_signal(signal.SIGKILL)
            each.process.wait(DEADLINE)


def test_probes_are_answered_until_the_file_is_valid(sidecar: Callable[..., Sidecar]) -> None:
    """No file at all, an empty one, one that is no YAML, and one with a wrong key: each is logged once, and shown."""
    agent = sidecar().start()
    agent.wait(WAITING)
    wrong = "downstream: {uir: amqp://localhost}"
    for times, text in enumerate((None, "", "downstream: {uri: amqp://localhost", wrong), 1):
        if text is not None:
            agent.write(text)
            agent.look_again()
        agent.wait(REFUSED, times)
        assert len(agent.lines(REFUSED)) == times
        assert agent.ask("/livez")[0] == 200
        assert agent.ask("/readyz")[0] == 503
        refused = agent.lines(REFUSED)[-1]
        assert (refused["level"], str(agent.path) in refused["error"]) == ("error", True)
        assert agent.ask("/api/overview")[1]["problems"][0] in refused["error"]

    agent.write(f"{wrong} # the same error again")
    agent.look_again()
    shown = federation_agent("status", "--url", f"http://127.0.0.1:{agent.port}")  # long enough for it to be read
    assert shown.status == 2
    assert shown.out.startswith("DOWN: no definitions are in force: ")
    assert "unknown key 'uir'" in shown.out
    agent.write("upstreams: {}")
    agent.look_again()
    agent.wait(REFUSED, 5)
    _, _, _, before, last = agent.lines(REFUSED)
    assert "unknown key 'uir'" in before["error"]
    assert "needs the key 'downstream'" in last["error"]

    agent.write(agent.valid())
    agent.wait(STARTED)
    eventually(lambda: accepts(agent.port), what="HTTP is up")
    assert agent.ask("/api/overview")[1]["agent"] == socket.gethostname()
    assert agent.stop() == 0


def test_a_secret_that_comes_later_is_read(sidecar: Callable[..., Sidecar]) -> None:
    """The file itself doesn't change."""
    agent = sidecar()
    agent.write(agent.valid().replace("downstream:", "x-token: &token ${file:token}\ndownstream:"))
    agent.start().wait(WAITING)
    assert "token" in agent.lines(REFUSED)[0]["error"]
    (agent.folder / "token").write_text("s3cret")
    agent.wait(STARTED)
    assert agent.stop() == 0


def test_beyond_loopback_only_probes_are_answered(sidecar: Callable[..., Sidecar]) -> None:
    """The token is in the file that isn't valid, and the errors name what is in it."""
    agent = sidecar("0.0.0.0")
    agent.write("downstream: {uir: amqp://localhost}")
    agent.start().wait(WAITING)
    assert (agent.ask("/livez")[0], agent.ask("/readyz")[0]) == (200, 503)
    for path in ("/api/overview", "/api/links", "/metrics", "/"):
        status, answer = agent.ask(path)
        assert (status, "its log says what is wrong" in answer["error"]) == (503, True)
    shown = federation_agent("status", "--url", f"http://127.0.0.1:{agent.port}")
    assert (shown.status, "no valid configuration yet" in shown.out + shown.err) == (2, True)
    assert agent.stop() == 0, "a stop is no failure while it waits"
    assert agent.lines("stopped")


def test_without_the_option_a_bad_file_ends_the_agent(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("downstream: {uir: amqp://localhost}")
    assert federation_agent("run", "-c", "agent.yaml", cwd=tmp_path).status == 2


@pytest.mark.parametrize("address", ["9419", "localhost", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    done = federation_agent("run", "-c", "agent.yaml", OPTION, address, cwd=tmp_path)
    assert (done.status, f"{OPTION}: expected HOST:PORT" in done.err) == (2, True)


def test_an_address_that_is_taken_is_named_by_the_option(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = federation_agent("run", "-c", "agent.yaml", OPTION, address, cwd=tmp_path)
    assert (done.status, f"{OPTION} http://{address}: " in done.err) == (3, True)
