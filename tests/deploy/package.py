"""What `scripts/release` builds, on a bare Debian; `scripts/package-test` runs this file, nothing else collects it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from agent.version import VERSION
from tests.acceptance.command import ROOT
from tests.deploy.image import INSTALLED, MARK, configuration_for, sites
from tests.deploy.test_install import FOLDER
from tests.deploy.test_systemd import MOST_EXPOSED, systemd_analyze
from tests.integration.federation.sites import Site
from tests.lab import processes
from tests.lab.lab import Lab, accepts
from tests.lab.waiting import DEADLINE, eventually

__all__ = ["sites"]

BUILT: Final = Path(os.environ["FEDERATION_AGENT_PACKAGES"]).absolute()
ROOTS: Final = Path(os.environ["FEDERATION_AGENT_ROOTS"]).absolute()
FIRST: Final = BUILT / "first"
DEBIANS: Final = {"bookworm": "deb12", "trixie": "deb13"}
OWN: Final = "federation-agent"
PYTHON: Final = "/opt/federation-agent/bin/python"
CONFIGURATION: Final = "/etc/federation-agent/agent.yml"
# Records what is asked of systemd, which doesn't run there.
SYSTEMCTL: Final = '#!/bin/sh\necho "$@" >>/run/asked\ncase "$*" in *is-enabled*) echo enabled ;; esac\n'
KEPT_BY_DEBIAN: Final = ("/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/", "/var/log/", "/run/", "/tmp/")


@dataclass(frozen=True, slots=True)
class Debian:
    """A bare Debian that forgets everything afterwards."""

    root: Path
    package: Path

    def run(self, *command: str, user: str = "root", **environment: str) -> str:
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        inside = ["chroot", f"--userspec={user}", str(self.root), "/usr/bin/env", "-i"]
        given = [f"{name}={value}" for name, value in (path | environment).items()]
        done = subprocess.run([*inside, *given, *command], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def install(self, package: Path) -> None:
        shutil.copy(package, self.root / "tmp")
        self.run("apt-get", "install", "--yes", "--no-install-recommends", f"/tmp/{package.name}")

    def asked(self) -> list[str]:
        """What systemd was asked for since the last look."""
        file = self.root / "run/asked"
        found = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def files(self) -> set[str]:
        """All but what apt and dpkg note for themselves."""
        found = self.run("find", "/", "-xdev").splitlines()
        return {each for each in found if not each.startswith(KEPT_BY_DEBIAN) and not each.endswith("-")}


@contextmanager
def bare(release: str, folder: Path) -> Iterator[Debian]:
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for each in (root, upper, work):
        each.mkdir()
    layers = f"lowerdir={ROOTS / release},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, root], check=True)
    try:
        subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
        (root / "run/systemd/system").mkdir(parents=True)
        (root / "usr/sbin/policy-rc.d").unlink()
        (root / "usr/bin/systemctl").write_text(SYSTEMCTL)
        (root / "usr/bin/systemctl").chmod(0o755)
        [package] = FIRST.glob(f"*+{DEBIANS[release]}_*.deb")
        yield Debian(root, package)
    finally:
        subprocess.run(["umount", "--recursive", root], check=True)


EACH: Final = [pytest.param(release, marks=pytest.mark.xdist_group(release)) for release in DEBIANS]


@pytest.fixture(params=EACH)
def debian(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Debian]:
    with bare(request.param, tmp_path) as found:
        yield found


@pytest.fixture(scope="module", params=EACH)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    """With the package, for all tests that only use it."""
    with bare(request.param, tmp_path_factory.mktemp(request.param)) as found:
        found.install(found.package)
        yield found


def newer(package: Path, folder: Path) -> Path:
    """The same under a later version."""
    tree, made = folder / "tree", folder / "newer.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}+", f"Version: {VERSION}.1+"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made], check=True, capture_output=True)
    return made


def test_the_same_commit_gives_the_same_bytes() -> None:
    assert (FIRST / "SHA256SUMS").read_text() == (BUILT / "second/SHA256SUMS").read_text()


def test_every_artefact_has_its_sum() -> None:
    sums = {name: digest for line in (FIRST / "SHA256SUMS").read_text().splitlines() for digest, name in [line.split()]}
    made = {each.name: each for each in FIRST.iterdir() if each.name != "SHA256SUMS"}
    assert sums == {name: hashlib.sha256(each.read_bytes()).hexdigest() for name, each in made.items()}
    assert {each.suffix for each in made.values()} == {".deb", ".gz", ".json", ".whl"}


def test_the_wheel_knows_its_commit() -> None:
    [wheel] = FIRST.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert len(archive.read("agent/build.txt").strip()) == 40
        assert not [name for name in archive.namelist() if not name.startswith(("agent/", "federation_agent-"))]


@pytest.mark.timeout(600)  # pip brings the packages
def test_wheel_and_sdist_are_installed_as_the_documents_say_with_what_is_listed_and_federate(
    tmp_path: Path, lab: Lab, sites: tuple[Site, Site]
) -> None:
    """By this machine's Python."""
    for each in (*FIRST.glob("*.whl"), *FIRST.glob("*.tar.gz")):
        shutil.copy(each, tmp_path)
    text = (ROOT / "docs/install.md").read_text().partition("### From wheel or sdist")[2]
    steps = text.partition("```text\n")[2].partition("```")[0].replace(FOLDER, str(tmp_path / "there"))
    said = at(tmp_path, steps)
    assert said.splitlines()[-1].startswith(f"federation-agent {VERSION} (build ")
    python = tmp_path / "there/bin/python"
    found = json.loads(at(tmp_path, f"{python} -I -c '{INSTALLED}'"))
    [file] = FIRST.glob(f"federation-agent-{VERSION}.cdx.json")
    listed = {each["name"]: each["version"] for each in json.loads(file.read_text())["components"]}
    assert {name: found[name] for name in found.keys() - {"pip", "setuptools"}} == listed | {OWN: VERSION}

    port = lab.ports.take()
    configuration = configuration_for(tmp_path, port, *sites) / "agent.yml"
    command = [str(python.with_name(OWN)), "run", "-c", str(configuration)]
    assert_federates(command, port, tmp_path / "log", lab=lab, sites=sites)

    pip, unpacked = f"{python} -m pip install", tmp_path / f"federation_agent-{VERSION}"
    at(unpacked, f"{pip} --require-hashes --only-binary :all: --requirement locks/build.lock")
    at(unpacked, f"{pip} --no-build-isolation --no-deps --force-reinstall .")
    assert at(tmp_path, f"{python.with_name(OWN)} --version") == said.splitlines()[-1] + "\n"
    assert_federates(command, port, tmp_path / "log", lab=lab, sites=sites)


def at(folder: Path, script: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian can't be installed here")
@pytest.mark.parametrize("package", sorted(FIRST.glob("*.deb")), ids=lambda path: path.name)
def test_lintian_finds_no_error(package: Path) -> None:
    done = subprocess.run(["lintian", "--fail-on", "error", package], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_the_packaged_service_is_let_do_as_little_as_ours(tmp_path: Path) -> None:
    package = next(iter(FIRST.glob("*.deb")))
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path], check=True)
    unit = tmp_path / "usr/lib/systemd/system/federation-agent.service"
    assert "\nUser=federation-agent\n" in unit.read_text()
    assert "\nExecStart=/opt/federation-agent/bin/federation-agent run " in unit.read_text()
    done = systemd_analyze("security", "--offline=true", unit)
    found = re.search(r"exposure level for .*: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_a_package_is_installed_upgraded_and_purged(debian: Debian, tmp_path: Path) -> None:
    before = debian.files()
    debian.install(debian.package)
    assert debian.asked()[-1] == "--quiet --system start federation-agent.service"
    assert debian.run("federation-agent", "--version").startswith(f"federation-agent {VERSION} (build ")
    configuration = debian.root / CONFIGURATION[1:]
    configuration.write_text("downstream: {uri: amqp://localhost}\n")
    assert debian.run("federation-agent", "validate").startswith(f"{CONFIGURATION}: valid")
    assert oct(configuration.parent.stat().st_mode & 0o777) == "0o750"

    debian.install(newer(debian.package, tmp_path))
    assert debian.asked()[-1] == "try-restart federation-agent.service"
    assert configuration.read_text() == "downstream: {uri: amqp://localhost}\n"
    assert list((debian.root / "opt/federation-agent").rglob("*.pyc"))

    debian.run("apt-get", "remove", "--yes", "federation-agent")
    assert "stop federation-agent.service" in debian.asked()
    assert configuration.exists()
    debian.run("apt-get", "purge", "--yes", "federation-agent")
    assert debian.files() == before
    assert "federation-agent" not in (debian.root / "etc/passwd").read_text() + (debian.root / "etc/group").read_text()


def test_what_is_listed_is_what_is_installed(installed: Debian) -> None:
    found = json.loads(installed.run(PYTHON, "-I", "-c", INSTALLED))
    listed = json.loads((FIRST / f"{installed.package.stem}.cdx.json").read_text())
    assert {each["name"]: each["version"] for each in listed["components"]} | {"federation-agent": VERSION} == found
    assert listed == json.loads((installed.root / "usr/share/doc/federation-agent/sbom.cdx.json").read_text())
    assert all(each.get("licenses") for each in listed["components"])


def test_the_documents_are_there(installed: Debian) -> None:
    documents = installed.root / "usr/share/doc/federation-agent"
    assert (documents / "docs/install.md").read_text().startswith("# Install\n")
    changes = gzip.decompress((documents / "changelog.gz").read_bytes()).decode()
    assert "see CHANGELOG.md" in changes
    assert f"\n## {VERSION}\n" in (documents / "CHANGELOG.md").read_text()


def test_the_shell_and_man_know_the_commands(installed: Debian) -> None:
    asked = {"_FEDERATION_AGENT_COMPLETE": "complete_bash", "COMP_WORDS": "federation-agent vali", "COMP_CWORD": "1"}
    assert installed.run("federation-agent", **asked).split() == ["validate"]
    page = installed.root / "usr/share/man/man1/federation-agent-links.1.gz"
    assert "\\-\\-watch" in gzip.decompress(page.read_bytes()).decode()
    checked = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_packaged_agent_federates(installed: Debian, tmp_path: Path, lab: Lab, sites: tuple[Site, Site]) -> None:
    port = lab.ports.take()
    made = configuration_for(tmp_path, port, *sites)
    inside = installed.root / CONFIGURATION[1:]
    shutil.copy(made / "agent.yml", inside)
    inside.chmod(0o640)
    shutil.chown(inside, group=inside.parent.stat().st_gid)
    user = f"--userspec={installed.run('id', '-u', 'federation-agent').strip()}:{inside.parent.stat().st_gid}"
    command = [
        "chroot",
        user,
        str(installed.root),
        "/usr/bin/env",
        "-i",
        f"{MARK}={sites[0].vhost}",
        "federation-agent",
        "run",
        "-c",
        CONFIGURATION,
    ]
    assert_federates(command, port, tmp_path / "log", lab=lab, sites=sites)


def assert_federates(command: list[str], port: int, log: Path, *, lab: Lab, sites: tuple[Site, Site]) -> None:
    here, there = sites
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment | lab.mark | {MARK: here.vhost}, stdout=output, stderr=output
        )
    try:
        eventually(lambda: accepts(port), what="HTTP is up")
        there.wait_bound("#")
        there.publish(["one", "two"])
        assert here.take(2) == ["one", "two"]
        process.terminate()
        assert process.wait(DEADLINE) == 0
    except AssertionError as error:
        error.add_note(log.read_text())
        raise
    finally:
        processes.end(f"{MARK}={here.vhost}")
        process.wait(DEADLINE)
