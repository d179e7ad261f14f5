"""How the report is run: units that systemd takes, manifests of their schemas, and a submission to a real cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pyspark
import pytest
import yaml

from agent.pipeline.options import parse
from tests.acceptance.command import COMMAND
from tests.deploy.prometheus import ROOT
from tests.deploy.test_systemd import MOST_EXPOSED, systemd_analyze
from tests.deploy.test_systemd import pytestmark as needs_systemd
from tests.lab.lab import Lab
from tests.lab.waiting import eventually
from tests.pipeline.lines import heartbeats, line, write

FOLDER: Final = ROOT / "deploy/spark"
SERVICES: Final = [FOLDER / "federation-report.service", FOLDER / "federation-report-streaming.service"]
TIMER: Final = FOLDER / "federation-report.timer"
MANIFESTS: Final[list[dict[str, Any]]] = [
    manifest
    for name in ("report.yaml", "cluster.yaml")
    for manifest in yaml.safe_load_all((FOLDER / "kubernetes" / name).read_text())
]
SPARK: Final = Path(pyspark.__file__).parent
ENVIRONMENT: Final = {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
CLUSTER_DEADLINE: Final = 300.0  # two of Java begin
CLUSTER_REPORT: Final = 500.0
"""Alone it takes a minute on two cores; beside other tests and their brokers it took four."""


@needs_systemd
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in (*SERVICES, TIMER):
        here = tmp_path / unit.name
        here.write_text(unit.read_text().replace("/usr/local/lib/federation-agent/bin/federation-agent", COMMAND))
    done = systemd_analyze("verify", "--man=no", *(tmp_path / unit.name for unit in (*SERVICES, TIMER)))
    assert (done.returncode, [text for text in done.stderr.splitlines() if "federation-report" in text]) == (0, [])


@needs_systemd
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_the_report_is_let_do_little(unit: Path) -> None:
    done = systemd_analyze("security", "--offline=true", unit)
    found = re.search(r"exposure level for .*: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']}")
def test_a_manifest_is_of_its_schema(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_what_units_and_manifests_ask_is_understood() -> None:
    [job] = [manifest for manifest in MANIFESTS if manifest["kind"] == "CronJob"]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert parse(container["args"][1:]).output == "/report"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    for unit in SERVICES:
        [command] = re.findall(r"^ExecStart=\S+ report (.*)$", unit.read_text(), re.MULTILINE)
        assert parse(command.split()).inputs == ("/srv/federation/status",)


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """A master and a worker of Spark's own on loopback; the worker has no Python to run."""
    port, web, worker, worker_web = (lab.ports.take() for _ in range(4))
    url, log = f"spark://127.0.0.1:{port}", tmp_path / "cluster.log"
    classes = {
        "master.Master": ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)],
        "worker.Worker": [
            "--host", "127.0.0.1", "--port", str(worker), "--webui-port", str(worker_web),
            "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), url,
        ],
    }  # fmt: skip
    environment = os.environ | lab.mark | ENVIRONMENT
    with ExitStack() as running, log.open("w") as said:
        for name, arguments in classes.items():
            process = running.enter_context(
                subprocess.Popen(
                    [SPARK / "bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                    env=environment,
                    stdout=said,
                    stderr=said,
                )
            )
            running.callback(process.terminate)
        not_yet = (OSError, ValueError)  # the master's page answers before its JSON does
        eventually(lambda: workers(web) == 1, CLUSTER_DEADLINE, what="the worker is registered", ignoring=not_yet)
        yield url


def workers(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/") as answer:
        return int(json.load(answer)["aliveworkers"])


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A driver's Python that has PyYAML and no federation-agent but what is submitted."""
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "yaml").symlink_to(Path(yaml.__file__).parent)
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@pytest.mark.timeout(1200)
@pytest.mark.thorough
def test_a_cluster_takes_the_package_as_a_zip(cluster: str, bare_python: Path, tmp_path: Path, lab: Lab) -> None:
    write(tmp_path / "in", line(0, "running"), line(20, "backoff"), line(40, "running"), *heartbeats(0, 60))
    subprocess.run([FOLDER / "package", tmp_path / "federation-agent.zip"], check=True)
    settings = {
        "spark.pyspark.driver.python": str(bare_python),
        "spark.pyspark.python": "/bin/false",  # executors need none
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        # Nothing runs long enough to be worth optimizing.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    command: list[str | Path] = [SPARK / "bin/spark-submit", "--master", cluster]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--py-files", tmp_path / "federation-agent.zip", ROOT / "agent/pipeline/job.py"]
    command += ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=bare | lab.mark | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=CLUSTER_REPORT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "out/summary.json").read_text())["incidents"] == 1
    assert (tmp_path / "out/report.html").read_text().startswith("<!doctype html>")
    assert list((tmp_path / "work").glob("app-*")), "the worker ran an executor"
