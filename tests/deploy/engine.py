"""docker-compose.yml with a real engine, in the order in which somebody would do it. `scripts/compose-test` runs it.

Only ports and names differ, so that neither is in the way of what else is on this machine. As a registry can't be asked
everywhere, both brokers run in a Debian with its own rabbitmq-server, and Prometheus and Grafana are left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from agent.version import VERSION
from tests.deploy.prometheus import ROOT
from tests.lab.waiting import DEADLINE, eventually

ENGINE: Final = Path(os.environ["FEDERATION_AGENT_ENGINE"])
PROJECT: Final = "federation-agent-test"
IMAGES: Final = f"localhost/{PROJECT}"
CHECKOUT: Final = (
    *("docker-compose.yml", "Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE"),
    *("deploy", "agent", "locks"),
)
BUILD: Final = f"{{network: host, args: {{BASE: {IMAGES}/debian}}, secrets: [pip]}}"
OVERRIDE: Final = f"""\
services:
  upstream: {{image: {IMAGES}/broker, pull_policy: never, ports: !reset []}}
  downstream: {{image: {IMAGES}/broker, pull_policy: never, ports: !reset []}}
  agent: {{image: {IMAGES}/agent, ports: !reset [], build: {BUILD}}}
  traffic: {{image: {IMAGES}/traffic, build: {BUILD}}}
secrets:
  pip: {{file: {ENGINE}/pip.conf}}
"""
STARTED: Final = 600  # seconds, for the first time it builds
SOON: Final = DEADLINE
pytestmark = pytest.mark.timeout(900)


def docker(*words: str | Path, cwd: Path | None = None, within: float = SOON) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COMPOSE_PROJECT_NAME": PROJECT}
    command = ["docker", *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=within
    )


class Example:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = folder / "deploy/compose/agent/agent.yml"
        self.token = folder / "deploy/compose/secrets/agent-token"

    def compose(self, *words: str, within: float = SOON) -> subprocess.CompletedProcess[str]:
        return docker("compose", *words, cwd=self.folder, within=within)

    def up(self, *words: str) -> str:
        done = self.compose(*words, within=STARTED)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def agent(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command as somebody on call runs it: nothing is given but its name."""
        return self.compose("exec", "-T", "agent", "federation-agent", *words)

    def links(self) -> list[dict[str, Any]]:
        done = self.agent("links", "--format", "json")
        found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return found

    def sed(self, expression: str) -> None:
        """As sed and many editors do: another file gets the name."""
        subprocess.run(["sed", "-i", expression, self.configuration], check=True)

    def take_down(self) -> subprocess.CompletedProcess[str]:
        return self.compose("--profile", "traffic", "down", "--volumes", "--timeout", "3")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    folder = tmp_path_factory.mktemp("checkout")
    for name in CHECKOUT:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    # As with a umask of 077, and then as docs/operations.md says.
    for mode, part in (("go-rwx", "."), ("go+rX", "deploy")):
        subprocess.run(["chmod", "-R", mode, part], cwd=folder, check=True)
    (folder / "docker-compose.override.yml").write_text(OVERRIDE)
    found = Example(folder)
    yield found
    found.take_down()


def test_the_first_up_asks_no_registry_for_what_it_builds(example: Example) -> None:
    said = example.up("up", "--detach", "--wait", "agent")
    assert not re.search(r"agent (Pulling|Warning|Error)|pull access denied", said)


def test_the_command_on_call_finds_the_agent_and_its_token(example: Example) -> None:
    done = example.agent("status", "--wait", "--timeout", "100")
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "FINE"), done
    assert example.agent("validate").returncode == 0


def test_a_password_s_hash_is_made_by_the_newer_broker(example: Example) -> None:
    assert example.compose("exec", "-T", "downstream", "rabbitmqctl", "hash_password", "new").returncode == 0


def test_the_traffic_is_waited_for_and_arrives(example: Example) -> None:
    example.up("--profile", "traffic", "up", "--detach", "--wait", "traffic")
    eventually(lambda: example.links()[0]["forwarded"] > 5, SOON, what="orders arrive downstream")


def test_a_file_that_was_replaced_is_read(example: Example) -> None:
    example.sed("s/origin/renamed/")
    eventually(lambda: [each["upstream"] for each in example.links()] == ["renamed"], SOON, what="the file is read")
    assert "configuration read" in example.compose("logs", "--no-log-prefix", "agent").stdout


def test_a_secret_that_was_replaced_is_said_until_a_restart(example: Example) -> None:
    """Compose mounts each secret by itself."""
    renewed = example.token.with_name("renewed")
    renewed.write_text("another-token\n")
    renewed.chmod(0o644)
    renewed.replace(example.token)
    replaced = "${file:/run/secrets/agent-token}: this is mounted as a single file"
    eventually(lambda: replaced in example.agent("status").stdout, SOON, what="the agent says so")
    assert example.compose("restart", "agent").returncode == 0
    eventually(lambda: example.agent("status").stdout.startswith("FINE"), SOON, what="it has the new one")


def test_after_a_pull_the_new_agent_runs(example: Example) -> None:
    source = example.folder / "agent/version.py"
    source.write_text(source.read_text().replace(VERSION, "9.8.7"))
    example.up("up", "--detach", "--wait", "agent")
    assert example.agent("--version").stdout.startswith("federation-agent 9.8.7 (")


def test_a_file_that_is_mounted_alone_is_not_called_read_and_a_failed_check_is_one_line(
    example: Example, tmp_path: Path
) -> None:
    file, name = tmp_path / "agent.yml", f"{PROJECT}-alone"
    file.write_text(yaml.safe_dump({"downstream": {"uri": "amqp://nowhere.invalid"}}))
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    volume = f"{file}:/etc/federation-agent/agent.yml:ro"
    wrong = ["--env", "FEDERATION_AGENT_URL=http://127.0.0.1:1", "--health-interval=1s"]
    options = ["--detach", "--name", name, "--network", "none", "--volume", volume, *wrong]
    try:
        started = docker("run", *options, f"{IMAGES}/agent")
        assert started.returncode == 0, started.stderr
        eventually(lambda: "started" in docker("logs", name).stdout, SOON, what="the agent runs")
        subprocess.run(["sed", "-i", "s/nowhere/elsewhere/", file], check=True)
        eventually(lambda: "mounted as a single file" in docker("logs", name).stdout, SOON, what="it says so")
        assert docker("logs", name).stdout.count("configuration read") == 1  # at the start
        health = eventually_checked(name)
    finally:
        docker("rm", "--force", name)
    assert health["ExitCode"] == 1
    assert health["Output"].splitlines() == [
        "federation-agent: agent http://127.0.0.1:1: connection refused: check the address and that the agent runs"
    ]


def eventually_checked(name: str) -> dict[str, Any]:
    def checks() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            docker("inspect", "--format", "{{json .State.Health.Log}}", name).stdout
        )
        return found

    eventually(checks, SOON, what="its health was looked at")
    return checks()[-1]


def test_nothing_is_left_of_it(example: Example) -> None:
    done = example.take_down()
    assert done.returncode == 0, done.stderr
    for words in (["ps", "--all", "--quiet"], ["volume", "ls", "--quiet"], ["network", "ls", "--quiet"]):
        assert docker(*words, "--filter", f"label=com.docker.compose.project={PROJECT}").stdout == ""
