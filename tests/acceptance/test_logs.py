"""The log of `run`, as whoever started it reads it."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.command import COMMAND, federation_agent
from tests.lab.lab import Lab
from tests.lab.waiting import DEADLINE, eventually

SECRET = "s3ntinel"


def logged(lab: Lab, folder: Path, *arguments: str, log: dict[str, Any] | None = None, until: str) -> list[str]:
    """The lines of a run beside a broker that is away, from its start to its stop."""
    uri = f"amqp://guest:{SECRET}@127.0.0.1:{lab.ports.take()}"
    document = {
        "agent": {"http": {"listen": f"127.0.0.1:{lab.ports.take()}"}, "log": log or {}},
        "downstream": {"uri": uri},
        "exchanges": {"x": {"type": "topic"}},
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(document))
    command = [COMMAND, "run", "-c", "agent.yaml", *arguments]
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **lab.mark}, stdout=out, stderr=out)
    try:
        eventually(lambda: until in (folder / "log").read_text(), what=f"{until!r} in the log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
    text = (folder / "log").read_text()
    assert SECRET not in text
    return text.splitlines()


def test_a_run_tells_programs_what_it_does(lab: Lab, tmp_path: Path) -> None:
    records = [json.loads(line) for line in logged(lab, tmp_path, until="definitions not read")]
    events = [record["event"] for record in records]
    assert (events[0], events[-2:]) == ("started", ["stopping", "stopped"])
    assert "configuration read" in events
    refused = records[events.index("definitions not read")]
    assert (refused["level"], "connection refused" in refused["error"]) == ("error", True)
    assert all(record["timestamp"].endswith("Z") for record in records)


def test_flags_come_before_the_configuration(lab: Lab, tmp_path: Path) -> None:
    arguments = ("--log-format", "console", "--log-level", "error")
    [line] = logged(lab, tmp_path, *arguments, log={"format": "json", "level": "info"}, until="definitions not read")
    assert "[error" in line
    assert "connection refused" in line


@pytest.mark.parametrize("option", ["--log-format", "--log-level"])
def test_a_word_that_is_none_of_its_choices(tmp_path: Path, option: str) -> None:
    done = federation_agent("run", "-c", "agent.yaml", option, "loud", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    [line] = done.errors
    assert "'loud' is not one of" in line
