"""Nothing of a lab outlives it: no process, no directory, also when the tests are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import processes
from tests.lab.lab import MARK, Lab
from tests.lab.node import Node
from tests.lab.releases import PROJECT
from tests.lab.waiting import eventually

# The fork holds all that the lab's process holds, as a worker of a test may.
SESSION = """
import os, signal
from tests.lab.lab import Lab
lab = Lab()
release = os.environ.get("RELEASE")
node = lab.node(release=release, plugins=()).start()
proxy = lab.proxy(node)
if os.fork():
    print(lab.directory, node.directory, flush=True)
signal.pause()
"""


def start_session(**environment: str) -> tuple[subprocess.Popen[str], Path, Path]:
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    assert session.stdout
    directory, node_directory = session.stdout.readline().split()
    return session, Path(directory), Path(node_directory)


def commands(entry: str) -> set[str]:
    """The first words of the lab's processes, and of those that have its name among their arguments: the reaper."""
    marked = processes.marked(entry)
    found = set()
    for folder in processes.PROC.iterdir():
        try:
            words = (folder / "cmdline").read_text().split("\0") if folder.name.isdigit() else []
        except OSError:
            continue
        if words and (int(folder.name) in marked or entry in words):
            found.add("reaper" if "tests.lab.reaper" in words else Path(words[0]).name)
    return found


def check_that_nothing_is_left(entry: str, *directories: Path) -> None:
    eventually(lambda: not commands(entry), what="no process is left")
    eventually(lambda: not any(directory.exists() for directory in directories), what="no directory is left")


@pytest.mark.parametrize("release", ["", pytest.param("trixie", marks=pytest.mark.versions)])
def test_killed_tests_leave_nothing(release: str) -> None:
    session, directory, node_directory = start_session(**({"RELEASE": release} if release else {}))
    entry = f"{MARK}={directory.name}"
    try:
        assert {"beam.smp", "epmd", "reaper", Path(sys.executable).name} <= commands(entry)
        assert directory.is_dir()
        assert node_directory.is_dir()
        session.kill()
        check_that_nothing_is_left(entry, directory, node_directory, node_directory.parent)
    finally:
        os.killpg(session.pid, signal.SIGKILL)
        session.communicate()


def test_the_ordinary_end_leaves_nothing() -> None:
    with Lab() as lab:
        node = lab.node(plugins=()).start()
        lab.proxy(node)
        child = subprocess.Popen(["sleep", "600"], env={**os.environ, **lab.mark})
    assert child.wait() == -signal.SIGKILL
    assert not node.alive
    check_that_nothing_is_left(f"{MARK}={lab.directory.name}", lab.directory)


def test_a_node_that_is_killed_takes_its_helpers_along(lab: Lab) -> None:
    node: Node = lab.node(plugins=())
    node.launch()
    mark = f"FEDERATION_LAB_NODE={node.name}"
    eventually(lambda: {"beam.smp", "erl_child_setup"} <= commands(mark), what="the broker and a helper run")
    node.kill()
    assert not processes.marked(mark)
