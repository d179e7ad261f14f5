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

FOLDER: Final = ROOT / "deploy/docker"
SERVICE: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]["agent"]
SECRETS: Final = "/run/secrets/federation-agent"


def test_compose_takes_the_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, FOLDER / "compose.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


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


def test_docker_run_is_the_same_as_the_compose_file() -> None:
    [line] = re.findall(r"^docker run (.*?[^\\])$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE | re.DOTALL)
    words = line.replace("\\\n", " ").split()
    assert words[-1] == SERVICE["image"]
    volumes = [after for word, after in itertools.pairwise(words) if word == "--volume"]
    assert [volume.removeprefix('"$PWD"').strip('"').replace("$PWD", ".") for volume in volumes] == [
        volume.replace("status:", "federation-agent-status:") for volume in SERVICE["volumes"]
    ]
    assert {"--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--network=host"} <= set(words)
    assert f"--stop-timeout={SERVICE['stop_grace_period'].removesuffix('s')}" in words
    assert f"--restart={SERVICE['restart']}" in words
