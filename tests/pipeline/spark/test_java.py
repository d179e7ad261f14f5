"""What the report's Java is started with: no Spark runs."""

import subprocess
from pathlib import Path

import pytest

from agent.pipeline.spark import java

PARALLEL, OTHER = "-XX:+UseParallelGC", "-XX:+UseG1GC"


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def starts(*arguments: str) -> bool:
    return subprocess.run(["java", *arguments, "-version"], capture_output=True, check=False).returncode == 0


def test_java_starts_with_it_and_collects_by_throughput() -> None:
    assert PARALLEL in java.options().split()
    assert starts(*java.options().split())
    assert not starts(*java.options().split(), OTHER), "else nobody had to be asked"


@pytest.mark.parametrize("name", ["PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS"])
def test_an_operators_collector_is_the_only_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, f"--driver-java-options {OTHER} pyspark-shell" if name[0] == "P" else OTHER)
    assert PARALLEL not in java.options()
    assert starts(*java.options().split(), OTHER)


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_so_is_one_of_the_defaults_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "conf" if name == "SPARK_HOME" else tmp_path
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv(name, str(tmp_path))
    file = directory / "spark-defaults.conf"
    file.write_bytes(b"spark.driver.memory 2g\nspark.app.name GCS \xff\n")
    assert PARALLEL in java.options()
    file.write_text(f"spark.driver.extraJavaOptions {OTHER}\n")
    assert PARALLEL not in java.options()
