"""The agent beside a broker that exists already: the Compose file, and the `docker run` line of the documents."""

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.acceptance.command import federation_agent
from tests.deploy.conftest import Compose
from tests.deploy.prometheus import ROOT
from tests.lab.node import Node

FOLDER: Final = ROOT / "deploy/docker"
SERVICE: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]["agent"]
SECRETS: Final = "/run/secrets/federation-agent"


def test_compose_takes_the_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, FOLDER / "compose.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert SERVICE["pull_policy"] == "never"  # no registry has it


@pytest.mark.versions
def test_compose_takes_it(compose: Compose) -> None:
    agent = compose(FOLDER / "compose.yml")["services"]["agent"]
    assert (agent["network_mode"], agent["read_only"], agent["cap_drop"]) == ("host", True, ["ALL"])
    assert [each["target"] for each in agent["volumes"]] == [volume.split(":")[1] for volume in SERVICE["volumes"]]


def test_the_configuration_is_valid_with_its_secrets(tmp_path: Path) -> None:
    text = (FOLDER / "agent/agent.yml").read_text()
    for name in re.findall(rf"{SECRETS}/([\w-]+)", text):
        (tmp_path / name).write_text("s3cret")
    (tmp_path / "agent.yml").write_text(text.replace(SECRETS, str(tmp_path)))
    done = federation_agent("validate", "-c", tmp_path / "agent.yml")
    assert (done.status, done.err) == (0, "")


def docker_run(document: str) -> tuple[list[str], list[str], list[str]]:
    """The only such line of a document: its options, what it mounts, and what the image is told to do."""
    [line] = re.findall(r"^docker run (.*?[^\\])$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    words = line.replace("\\\n", " ").split()
    at = max(number for number, word in enumerate(words) if word == SERVICE["image"])  # its name is the same word
    volumes = [after for word, after in itertools.pairwise(words[:at]) if word == "--volume"]
    return words[:at], [volume.strip('"').replace("$PWD", ".") for volume in volumes], words[at + 1 :]


def test_docker_run_is_the_same_as_the_compose_file() -> None:
    words, volumes, told = docker_run("docs/operations.md")
    assert not told
    assert volumes == [volume.replace("status:", "federation-agent-status:") for volume in SERVICE["volumes"]]
    assert {"--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--network=host"} <= set(words)
    assert f"--stop-timeout={SERVICE['stop_grace_period'].removesuffix('s')}" in words
    assert f"--restart={SERVICE['restart']}" in words


def test_docker_run_for_one_command_mounts_what_the_agent_reads() -> None:
    words, volumes, told = docker_run("docs/install.md")
    assert volumes == [volume for volume in SERVICE["volumes"] if volume.endswith(":ro")]
    assert {"--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--network=host"} <= set(
        words
    )
    assert told[0] == "validate"


def test_the_commands_that_it_is_shown_with_do_what_they_say(tmp_path: Path, broker: Node, second_broker: Node) -> None:
    """In the folder that is mounted, between two brokers, by what the image starts."""
    *_, told = docker_run("docs/install.md")
    text = (FOLDER / "agent/agent.yml").read_text()
    for name in re.findall(rf"{SECRETS}/([\w-]+)", text):
        (tmp_path / name).write_text("guest")
    text = text.replace(SECRETS, str(tmp_path)).replace("//agent:", "//guest:")
    for word, node in (("rabbitmq.origin.example", second_broker), ("127.0.0.1", broker)):
        text = text.replace(f"@{word}:5672", f"@127.0.0.1:{node.amqp_port}")
        text = text.replace(f"@{word}:15672", f"@127.0.0.1:{node.management_port}")
    (tmp_path / "agent.yml").write_text(text)
    for command in ("validate", "check", "check --deliver", "plan"):
        assert f"`{command}`" in (ROOT / "docs/install.md").read_text()
        words = " ".join(told).replace("validate", command).replace("/etc/federation-agent", str(tmp_path)).split()
        done = federation_agent(*words)
        assert done.status in {0, 4 if "check" in command else 0}, (command, done.err)
        assert done.out
