"""The commands of docs/install.md, run in a copy of the checkout; and no document names a package of a registry.

What pip would bring from outside is not brought: the tests need no network. The packages of the tests' own environment
stand in for those of the locks.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.command import ROOT
from tests.acceptance.test_documents import DOCUMENTS, INSTALL
from tests.deploy.test_systemd import UNIT

FOLDER: Final = "/usr/local/lib/federation-agent"
PIP: Final = f"{FOLDER}/bin/python -m pip install "
PACKAGES: Final = Path(sysconfig.get_path("purelib"))
OF_BUILD: Final = ("agent", "locks", "pyproject.toml", "README.md", "LICENSE")
FROM_A_REGISTRY: Final = re.compile(r"pip3? install(?: -\S+)* '?federation[-_]agent")
CONFIGURATION: Final = "/etc/federation-agent/agent.yml"


def installs() -> Iterator[list[str]]:
    """The words of each call of pip, after `install`."""
    for command in INSTALL.values():
        if command.startswith(PIP):
            yield shlex.split(command.removeprefix(PIP))


def test_nothing_is_installed_that_no_lock_names() -> None:
    found = list(installs())
    assert found
    for words in found:
        locks = [after for word, after in itertools.pairwise(words) if word == "--requirement"]
        others = [word for word in words if not word.startswith("-") and word not in {*locks, ":all:"}]
        if locks:
            assert "--require-hashes" in words and not others
            assert all((ROOT / lock).is_file() for lock in locks)
        else:
            assert {"--no-deps", "--no-build-isolation"} <= set(words)  # nothing else is brought
            assert others == ["."]
    assert re.findall(r"locks/\S+", " ".join(found[0])) == ["locks/build.lock", "locks/traffic.lock"]  # as the image


def test_nobody_is_told_to_take_the_agent_from_a_registry() -> None:
    """Where nobody has published it, anybody may register its name."""
    texts = [*DOCUMENTS, *(ROOT / "agent").rglob("*.py"), *(path for path in (ROOT / "deploy").rglob("*"))]
    files = [path for path in texts if path.is_file()]
    assert [str(path) for path in files if FROM_A_REGISTRY.search(path.read_text())] == []


def test_the_unit_starts_what_is_installed() -> None:
    text = UNIT.read_text()
    assert f"ExecStart={FOLDER}/bin/federation-agent run -c {CONFIGURATION}\n" in text
    assert "docs/install.md" in text


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = tmp_path / "checkout"
    made.mkdir()
    for name in OF_BUILD:
        source = ROOT / name
        copy: Any = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, made / name)
    (tmp_path / "agent.yml").write_text("downstream: {uri: amqp://localhost}\n")
    return made


@pytest.mark.thorough
def test_the_commands_install_a_program_that_runs(checkout: Path, tmp_path: Path) -> None:
    target = tmp_path / "opt"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = {}
    for command in INSTALL.values():
        here = command.replace(FOLDER, str(target)).replace(CONFIGURATION, str(tmp_path / "agent.yml"))
        if "--require-hashes" in command:
            stand_in(target)
            continue
        done = subprocess.run(
            ["bash", "-ec", here], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (here, done.stderr)
        said[command.rpartition("/")[2].split()[-1]] = done.stdout
    assert said["--version"].startswith("federation-agent ")
    assert ": valid" in said["agent.yml"]
    assert list(target.rglob("site-packages/agent/cli/main.py"))  # its own
    assert {path.name for path in checkout.iterdir()} == set(OF_BUILD)  # nothing is left for the next build


def stand_in(target: Path) -> None:
    """For the packages of a lock; before those that a new environment has, which are older."""
    [site] = target.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"import sys; sys.path.insert(0, {str(PACKAGES)!r})\n")
