"""Agents that are forked are processes as any other: their end, their output, their directory."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.preloaded import Started
from tests.lab.waiting import DEADLINE, eventually


def answers(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=DEADLINE) as answer:
        return bool(answer.read())
    return False


def test_its_output_and_its_status(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("agent: {}\n")
    log = tmp_path / "log"
    process = lab.agents.start(["run", "-c", tmp_path / "bad.yaml"], output=log)
    assert process.wait(DEADLINE) == 2
    assert process.wait(0) == process.poll() == 2
    assert "bad.yaml" in log.read_text()


def test_it_is_ended_by_signals(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    ports = lab.ports.take(), lab.ports.take()
    ended = {}
    for number, port in zip((signal.SIGTERM, signal.SIGKILL), ports, strict=True):
        config.write_text(
            f'{{"agent": {{"http": {{"listen": "127.0.0.1:{port}"}}}}, "downstream": {{"uri": "amqp://127.0.0.1:1"}}}}'
        )
        process = lab.agents.start(["run", "-c", config], output=tmp_path / "log")
        eventually(lambda port=port: answers(port), what="it runs")  # type: ignore[misc]
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.send_signal(number)
        ended[number] = process.wait(DEADLINE)
        process.send_signal(number)  # too late, and harmless
    assert ended == {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}


def test_a_process_that_has_ended_before_anybody_looks() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"17\n" + json.dumps([3, 0.5, 56.0]).encode())
    started = Started(ours.detach())
    assert (started.pid, started.wait(5), started.cpu) == (17, 3, 0.5)
