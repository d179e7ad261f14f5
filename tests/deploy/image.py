"""The images that `make image-test` builds; that runs this file, nothing else collects it."""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from agent.version import VERSION
from tests.integration.federation.conftest import SiteOn
from tests.integration.federation.sites import Site, policies
from tests.lab import processes
from tests.lab.lab import Lab, accepts
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE, eventually
from tests.pipeline.lines import heartbeats, line, write

STORE: Final = Path(os.environ.get("FEDERATION_AGENT_IMAGES", "var/images")).absolute()
RELEASED: Final = Path(os.environ.get("FEDERATION_AGENT_RELEASED", "var/images")).absolute()
AGENT: Final = "localhost/federation-agent"
READ: Final = "docker.io/library/federation-agent"  # as an archive calls what it has
RELEASED_AGENT, REPORT = f"{READ}:{VERSION}", f"{READ}-report:{VERSION}"
TRAFFIC: Final = "localhost/federation-agent-traffic"
BUILDAH: Final = ("buildah", "--root", str(STORE / "store"), "--runroot", str(STORE / "run"), "--storage-driver=vfs")
CONFIGURATION: Final = "/etc/federation-agent"
MARK: Final = "FEDERATION_AGENT_CONTAINER"
UID: Final = 10001
INSTALLED: Final = """
import json
from importlib.metadata import distributions
print(json.dumps({each.metadata["Name"].lower().replace("_", "-"): each.version for each in distributions()}))
"""
# A container is a copy of all its files, and Spark starts uncompiled.
# What a container engine does: a process space of its own, nothing to write to, and no way back to root.
AS_FIRST_PROCESS: Final = """
mount --bind "$1" "$1"
mount --bind "$2" "$1/etc/federation-agent"
mount -o remount,bind,ro "$1"
mount -t proc proc "$1/proc"
root=$1
shift 2
exec setpriv --no-new-privs chroot --userspec=10001:10001 "$root" env -i "$@"
"""


def buildah(*arguments: str) -> str:
    return subprocess.run([*BUILDAH, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    root: Path
    config: dict[str, Any]

    @property
    def command(self) -> list[str]:
        """What an engine would start."""
        return [*self.config["Entrypoint"], *self.config["Cmd"]]

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        return subprocess.run(
            [*BUILDAH, "run", "--isolation=chroot", *given, self.name, "--", *command],
            capture_output=True,
            text=True,
            check=False,
        )


def containers(image: str) -> Iterator[Container]:
    name = buildah("from", "--pull-never", image)
    try:
        config = json.loads(buildah("inspect", name))["Docker"]["config"]
        yield Container(name, Path(buildah("mount", name)), config)
    finally:
        buildah("rm", name)


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    yield from containers(AGENT)


@pytest.fixture(scope="module")
def released_container() -> Iterator[Container]:
    """Of the archive, as it was read again."""
    yield from containers(RELEASED_AGENT)


@pytest.fixture(scope="module")
def report_container() -> Iterator[Container]:
    yield from containers(REPORT)


@pytest.fixture(scope="module")
def traffic_container() -> Iterator[Container]:
    yield from containers(TRAFFIC)


Command = Callable[[Container, Path, str], list[str]]


def by_buildah(container: Container, configuration: Path, mark: str) -> list[str]:
    volume = f"{configuration}:{CONFIGURATION}:ro"
    options = ["--isolation=chroot", "--volume", volume, "--env", mark]
    return [*BUILDAH, "run", *options, container.name, "--", *container.command]


def as_first_process(container: Container, configuration: Path, mark: str) -> list[str]:
    (container.root / CONFIGURATION[1:]).mkdir(exist_ok=True)
    space = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    shell = ["bash", "-ec", AS_FIRST_PROCESS, "container", str(container.root), str(configuration)]
    return [*space, *shell, mark, *container.config["Env"], *container.command]


def configuration_for(directory: Path, port: int, here: Site, there: Site) -> Path:
    document = {
        "agent": {"http": {"listen": f"127.0.0.1:{port}"}},
        "downstream": {"uri": here.node.uri(), "management": here.node.management_uri()},
        "definitions": {"management": False},
        "vhosts": {here.vhost: {"upstreams": {"origin": {"uri": there.uri}}, "policies": policies()}},
    }
    made = directory / "configuration"
    made.mkdir(mode=0o755)
    (made / "agent.yml").write_text(yaml.safe_dump(document))
    return made


@pytest.fixture
def sites(broker: Node, second_broker: Node, site_on: SiteOn) -> tuple[Site, Site]:
    """Downstream with a bound queue, upstream."""
    return site_on(broker).exchange().queue("#"), site_on(second_broker)


@pytest.mark.parametrize("started", [by_buildah, as_first_process])
def test_the_agent_federates_without_rights_and_leaves_when_told(
    container: Container, started: Command, tmp_path: Path, lab: Lab, *, sites: tuple[Site, Site]
) -> None:
    here, there = sites
    port, log, mark = lab.ports.take(), tmp_path / "log", f"{MARK}={here.vhost}"
    command = started(container, configuration_for(tmp_path, port, here, there), mark)
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | lab.mark, stdout=output, stderr=output)
    try:
        eventually(lambda: accepts(port), what="HTTP is up")
        there.wait_bound("#")
        there.publish(["one", "two"])
        assert here.take(2) == ["one", "two"]
        [agent] = processes.marked(mark)
        assert Path(f"/proc/{agent}").stat().st_uid == UID
        assert (own_id(agent) == 1) is (started is as_first_process)
        assert_healthy(container, port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=DEADLINE) as page:
            assert page.headers.get_content_type() == "text/html"
        os.kill(agent, signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    except AssertionError as error:
        error.add_note(log.read_text())
        raise
    finally:
        processes.end(mark)
        process.wait(DEADLINE)
    there.wait_depth(0, there.links_objects()[0])


def test_the_released_agent_federates(
    released_container: Container, tmp_path: Path, lab: Lab, sites: tuple[Site, Site]
) -> None:
    here, there = sites
    port, mark = lab.ports.take(), f"{MARK}={here.vhost}"
    configuration = configuration_for(tmp_path, port, here, there)
    with subprocess.Popen(by_buildah(released_container, configuration, mark), env=os.environ | lab.mark) as process:
        try:
            there.wait_bound("#")
            there.publish(["one", "two"])
            assert here.take(2) == ["one", "two"]
        finally:
            processes.end(mark)
            process.wait(DEADLINE)


def test_the_same_files_give_the_same_image() -> None:
    again = sorted((RELEASED / "again").iterdir())
    assert [each.suffix for each in again] == [".json", ".tar"] * 2
    for each in again:
        assert filecmp.cmp(each, RELEASED / "release" / each.name, shallow=False), each.name


@pytest.mark.parametrize("image", ["released_container", "report_container"])
def test_a_released_image_tells_nothing_of_the_machine_that_made_it(image: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(image).root
    sources = (root / "etc/apt/sources.list").read_text().splitlines()
    assert [line.split()[1:3] for line in sources] == [
        ["http://deb.debian.org/debian", "bookworm"],
        ["http://deb.debian.org/debian", "bookworm-updates"],
        ["http://security.debian.org/debian-security", "bookworm-security"],
    ]
    assert not [each for each in (root / "var/log").rglob("*") if each.is_file()]
    for name in ("etc/hostname", "etc/resolv.conf", "usr/sbin/policy-rc.d"):
        assert not (root / name).is_file() or not (root / name).read_text(), name


def test_the_first_layer_of_what_is_released_has_one_time(tmp_path: Path) -> None:
    """Debian's newest package gave it: nothing is of when the base was made."""
    [file] = (RELEASED / "release").glob(f"*-{VERSION}-agent-*.oci.tar")
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path, filter="data")

    def blob(descriptor: dict[str, str]) -> Path:
        return tmp_path / "blobs" / descriptor["digest"].replace(":", "/")

    manifest = json.loads(blob(json.loads((tmp_path / "index.json").read_text())["manifests"][0]).read_text())
    with tarfile.open(blob(manifest["layers"][0])) as layer:
        [time] = {each.mtime for each in layer}
    first = json.loads(blob(manifest["config"]).read_text())["history"][0]
    assert datetime.fromisoformat(first["created"]) == datetime.fromtimestamp(time, UTC)
    assert manifest["annotations"]["org.opencontainers.image.base.name"] == "localhost/debian:bookworm"


@pytest.mark.parametrize("image", ["agent", "report"])
def test_what_is_listed_is_what_the_image_has(image: str, request: pytest.FixtureRequest) -> None:
    container: Container = request.getfixturevalue({"agent": "released_container", "report": "report_container"}[image])
    [file] = (RELEASED / "release").glob(f"*-{VERSION}-{image}-*.cdx.json")
    listed: dict[str, dict[str, str]] = {"pypi": {}, "deb": {}}
    for each in json.loads(file.read_text())["components"]:
        listed[each["purl"].removeprefix("pkg:").partition("/")[0]][each["name"]] = each["version"]
    found = json.loads(container.run("python", "-I", "-c", INSTALLED).stdout)
    assert listed["pypi"] | {"federation-agent": VERSION} == found
    system = container.run("dpkg-query", "--show", "--showformat=${Package} ${Version}\\n").stdout.splitlines()
    assert listed["deb"] == dict(line.split(" ") for line in system)


def test_no_module_is_compiled_when_the_released_agent_starts(released_container: Container) -> None:
    """An archive's files have the time of the commit, which compiled modules must not look at."""
    stale = released_container.run("python", "-v", "-c", "import agent.cli.main").stderr
    assert "matches" in stale
    assert "could not" not in stale
    assert "bytecode is stale" not in stale


def own_id(pid: int) -> int:
    """The process's id as it sees itself."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


def assert_healthy(container: Container, port: int) -> None:
    kind, *check = container.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    assert container.run(*check, FEDERATION_AGENT_URL=f"http://127.0.0.1:{port}").returncode == 0
    assert container.run(*check, FEDERATION_AGENT_URL="http://127.0.0.1:1").returncode != 0


def test_the_agent_s_image_has_what_it_needs_and_no_more(released_container: Container) -> None:
    packages = released_container.root / "opt/federation-agent/lib/python3.11/site-packages"
    assert (packages / "agent").is_dir()
    assert (packages / "aio_pika").is_dir()  # for `check --deliver`
    assert not [name for name in ("pyspark", "pip", "tests", "pytest") if (packages / name).exists()]
    assert not list((released_container.root / "usr/lib").glob("jvm"))
    assert released_container.config["User"] == f"{UID}:{UID}"
    assert released_container.run("federation-agent", "--version").stdout.startswith("federation-agent ")


def test_the_report_s_image_has_spark_and_java(report_container: Container) -> None:
    spark = report_container.run("python", "-c", "import pyspark; print(pyspark.__version__)")
    assert spark.returncode == 0, spark.stderr
    assert report_container.run("java", "-version").returncode == 0
    assert report_container.run("federation-agent", "--version").returncode == 0


@pytest.mark.timeout(900)  # Spark, uncompiled
def test_the_released_report_makes_one_of_an_export(report_container: Container, tmp_path: Path) -> None:
    write(tmp_path / "status", line(0, "running"), line(20, "backoff"), line(40, "running"), *heartbeats(0, 60))
    made = tmp_path / "report"
    made.mkdir()
    shutil.chown(made, UID)
    volumes = ["--volume", f"{tmp_path / 'status'}:/status:ro", "--volume", f"{made}:/report"]
    asked = ["report", "--input", "/status", "--output", "/report"]
    alone = ["--env", "SPARK_LOCAL_IP=127.0.0.1"]  # as docs/pipeline.md: its name leads nowhere
    command = ["run", "--isolation=chroot", *volumes, *alone, report_container.name, "--"]
    done = subprocess.run(
        [*BUILDAH, *command, *report_container.config["Entrypoint"], *asked],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((made / "summary.json").read_text())["incidents"] == 1
    assert (made / "report.html").read_text().startswith("<!doctype html>")


def test_the_traffic_s_image_has_the_client(traffic_container: Container) -> None:
    imported = traffic_container.run("python", "-c", "import aio_pika")
    assert imported.returncode == 0, imported.stderr
