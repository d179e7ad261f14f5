"""The set-up as a user meets it: the real scripts, on this machine or on one whose PATH lacks something."""

import os
import re
import resource
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.lab.waiting import DEADLINE

ROOT = Path(__file__).parents[3]
HIDDEN = re.compile(r"apt|sudo|java|chrom|google-chrome|node|rabbitmq|prom")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    outside_make = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=outside_make | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def _machine_is_set_up() -> None:
    """Without it the scripts under test would install things in the middle of a test."""
    looked = run("scripts/setup", "--check")
    assert looked.returncode == 0, f"make setup first: {looked.stderr}"


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """This machine's tools without those that set-up installs or installs with."""
    path = tmp_path / "bin"
    path.mkdir()
    for folder in (Path("/bin"), Path("/usr/bin")):
        for tool in folder.iterdir():
            link = path / tool.name
            if not HIDDEN.match(tool.name) and not link.is_symlink():
                link.symlink_to(tool)
    return path


def used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def set_up_on(path: Path) -> subprocess.CompletedProcess[str]:
    places = {
        "FEDERATION_AGENT_BROKER_SCRIPTS": str(path),
        "FEDERATION_AGENT_SYSTEM_PYTHON": str(path / "system-python"),
    }
    return run("scripts/setup", PATH=str(path), JAVA_HOME="", **places)


def add_tool(path: Path, name: str, script: str) -> None:
    tool = path / name
    tool.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)


def test_second_run_does_nothing_in_under_three_seconds() -> None:
    """Of CPU time, as what else the machine does is no matter of set-up."""
    before = used_by_children()
    done = run("make", "setup")
    assert used_by_children() - before < 3
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[-1] == "setup: nothing is missing"
    assert all(line.startswith("  have  ") for line in lines[:-1])
    assert len(lines) == 9


def test_set_up_is_the_same_from_another_folder(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "scripts/setup"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("setup: nothing is missing\n")


def test_all_that_is_missing_is_listed_at_once_with_the_command_to_install_it(bare_path: Path) -> None:
    done = set_up_on(bare_path)
    assert done.returncode == 1
    assert "(this system has no apt-get)" in done.stderr
    assert (
        "apt-get update && apt-get install --no-install-recommends rabbitmq-server openjdk-17-jre-headless"
        " chromium-headless-shell nodejs prometheus python3-qpid-proton\n"
    ) in done.stderr
    assert "  have  .venv" in done.stdout  # what could be done was done


def test_only_what_is_missing_is_listed(bare_path: Path) -> None:
    add_tool(bare_path, "rabbitmq-server", "")
    add_tool(bare_path, "chromium-browser", "")
    add_tool(bare_path, "node", "echo v18.20.4")
    add_tool(bare_path, "prometheus", "")
    add_tool(bare_path, "promtool", "")
    add_tool(bare_path, "system-python", "")
    done = set_up_on(bare_path)
    assert done.returncode == 1
    assert "install --no-install-recommends openjdk-17-jre-headless\n" in done.stderr


@pytest.mark.parametrize(
    ("printed", "major", "enough"),
    [
        ('openjdk version "1.8.0_292"', 8, False),
        pytest.param('openjdk version "11.0.2" 2019-01-15', 11, False, marks=pytest.mark.thorough),
        pytest.param('openjdk version "17.0.15" 2025-04-15', 17, True, marks=pytest.mark.thorough),
        pytest.param('java version "25" 2025-09-16 LTS', 25, True, marks=pytest.mark.thorough),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "21-ea" 2023-09-19', 21, True),
    ],
)
def test_java_counts_from_17(bare_path: Path, printed: str, major: int, enough: bool) -> None:
    add_tool(bare_path, "java", f"printf '%s\\n' '{printed}' >&2")
    done = set_up_on(bare_path)
    assert (f"  have  Java {major}\n" in done.stdout) is enough
    assert (f"java on PATH is {major};" in done.stderr) is not enough
    assert ("openjdk-17-jre-headless" in done.stderr) is not enough


def test_node_counts_from_18(bare_path: Path) -> None:
    add_tool(bare_path, "node", "echo v12.22.12")
    assert "  - Node.js 18 or later (node on PATH is 12)\n" in set_up_on(bare_path).stderr
    add_tool(bare_path, "node", "echo v18.20.4")
    assert "  have  Node.js 18\n" in set_up_on(bare_path).stdout


def test_an_old_java_home_is_named(bare_path: Path, tmp_path: Path) -> None:
    (tmp_path / "old/bin").mkdir(parents=True)
    add_tool(tmp_path / "old/bin", "java", "echo 'openjdk version \"11\"' >&2")
    done = run("scripts/setup", "--check", PATH=str(bare_path), JAVA_HOME=str(tmp_path / "old"))
    assert done.returncode == 1
    assert f"JAVA_HOME={tmp_path}/old is Java 11" in done.stderr


def test_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    listed = [line.split()[:2] for line in run("make").stdout.splitlines()]
    assert listed == [["make", target] for target in phony[1].split()]
    assert {"setup", "demo", "test", "lint", "bench", "versions", "lock", "clean"} <= {target for _, target in listed}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, tuple[str, int]]:
    """Each package's version, and how many hashes its files have."""
    found: dict[str, tuple[str, int]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / file).read_text(encoding="utf-8")):
        if pin := re.match(r"([\w.-]+)==(\S+)", entry):
            found[canonical(pin[1])] = pin[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry))
    return found


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[<>=!~;\[ ]", requirement)[0]) for requirement in requirements}


LOCKS = {
    "requirements.lock": ("dev", "report"),
    "locks/agent.lock": (),
    "locks/report.lock": ("report",),
    "locks/traffic.lock": ("traffic",),
}


@pytest.mark.parametrize("file", LOCKS)
def test_every_dependency_is_locked(file: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for extra in LOCKS[file] for one in project["optional-dependencies"][extra]]
    assert names(project["dependencies"] + extras) - pins(file).keys() == set()
    everything = pins("requirements.lock")
    assert all(everything[name] == pin for name, pin in pins(file).items())


def test_what_builds_is_locked() -> None:
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert names(system["requires"]) == pins("locks/build.lock").keys()


def test_what_makes_the_site_is_locked_apart_from_all_else() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    site = pins("locks/docs.lock")
    assert names(groups["docs"]) <= site.keys()
    assert not any(names(groups["docs"]) & pins(file).keys() for file in LOCKS)
    everything = pins("requirements.lock")
    assert all(site[name][0] == version for name, (version, _) in everything.items() if name in site)


@pytest.mark.parametrize("file", [*LOCKS, "locks/build.lock", "locks/docs.lock"])
def test_pip_takes_only_files_whose_hash_is_locked(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert all(line.startswith(("#", "    --hash=sha256:")) or "==" in line for line in text.splitlines())
    assert "://" not in text  # no index: pip's own configuration names it
    assert all(hashes > 0 for _, hashes in pins(file).values())
    script = (ROOT / "scripts/setup").read_text(encoding="utf-8")
    assert file not in {"requirements.lock", "locks/build.lock"} or f"--requirement {file}" in script
    installs = re.findall(r"^    ?.*pip_install (.*)$", script, re.MULTILINE)
    assert all("--require-hashes" in each or "--no-deps" in each for each in installs)


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    other = re.sub(r"--hash=sha256:\w+", f"--hash=sha256:{'0' * 64}", (ROOT / "locks/build.lock").read_text())
    lock, wheels = tmp_path / "build.lock", tmp_path / "wheels"
    lock.write_text(other)
    version = pins("locks/build.lock")["setuptools"][0]
    wheels.mkdir()
    with zipfile.ZipFile(wheels / f"setuptools-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"setuptools-{version}.dist-info/METADATA", f"Name: setuptools\nVersion: {version}\n")
    command = [sys.executable, "-m", "pip", "install", "--require-hashes", "--no-index", "--find-links", str(wheels)]
    done = run(*command, "--target", str(tmp_path / "here"), "--requirement", str(lock), PIP_FIND_LINKS="")
    assert done.returncode != 0
    assert "HASHES" in done.stderr


def test_a_root_that_is_no_broker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "trixie/precious").mkdir(parents=True)
    done = run("scripts/versions", "trixie", FEDERATION_AGENT_VERSIONS_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "remove it" in done.stderr
    assert (tmp_path / "trixie/precious").is_dir()


def test_a_release_is_a_name_and_not_a_path(tmp_path: Path) -> None:
    done = run("scripts/versions", "../elsewhere", FEDERATION_AGENT_VERSIONS_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "not the name of a Debian release: ../elsewhere" in done.stderr


def run_ci(path: Path, failing: str) -> subprocess.CompletedProcess[str]:
    """The runner with a `make` that tells what it was asked for and fails as make does."""
    add_tool(
        path,
        "make",
        f'echo "== $* =="\n[[ $1 != {failing} ]] || {{ echo "make: *** [Makefile:1: $1] Error 1" >&2; exit 2; }}',
    )
    return run(".ci/run", PATH=f"{path}:{os.environ['PATH']}", CI="true")


def test_ci_ends_on_the_closing_line_of_the_tests(tmp_path: Path) -> None:
    passed = run_ci(tmp_path, failing="nothing")
    assert passed.returncode == 0
    assert passed.stdout.splitlines() == ["== lint ==", "== versions ==", "== test ==", "== test-all REST=1 =="]

    for failing, last in (("test", "== test =="), ("test-all", "== test-all REST=1 ==")):
        red = run_ci(tmp_path, failing=failing)
        assert red.returncode != 0
        assert red.stdout.splitlines()[-1] == last
        assert red.stderr == ""


def test_ci_stops_at_lint(tmp_path: Path) -> None:
    red = run_ci(tmp_path, failing="lint")
    assert red.returncode != 0
    assert red.stdout.splitlines() == ["== lint =="]
