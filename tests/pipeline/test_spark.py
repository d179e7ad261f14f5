"""How Spark's Java is started, what is shown of its output, and work done in parallel."""

import subprocess
import sys
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from agent.pipeline.spark import begin_step, in_parallel, java_options, quiet
from tests.lab.waiting import DEADLINE

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

PARALLEL, OTHER = "-XX:+UseParallelGC", "-XX:+UseG1GC"


@pytest.fixture
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def starts(*arguments: str) -> bool:
    return subprocess.run(["java", *arguments, "-version"], capture_output=True, check=False).returncode == 0


@pytest.mark.usefixtures("no_options")
def test_java_starts_with_it_and_collects_by_throughput() -> None:
    assert PARALLEL in java_options().split()
    assert starts(*java_options().split())
    assert not starts(*java_options().split(), OTHER), "else nobody had to be asked"


@pytest.mark.usefixtures("no_options")
@pytest.mark.parametrize("name", ["PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS"])
def test_an_operators_collector_is_the_only_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, f"--driver-java-options {OTHER} pyspark-shell" if name[0] == "P" else OTHER)
    assert PARALLEL not in java_options()
    assert starts(*java_options().split(), OTHER)


@pytest.mark.usefixtures("no_options")
@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_so_is_one_of_the_defaults_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "conf" if name == "SPARK_HOME" else tmp_path
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv(name, str(tmp_path))
    file = directory / "spark-defaults.conf"
    file.write_bytes(b"spark.driver.memory 2g\nspark.app.name GCS \xff\n")
    assert PARALLEL in java_options()
    file.write_text(f"spark.driver.extraJavaOptions {OTHER}\n")
    assert PARALLEL not in java_options()


def prints() -> None:
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('a warning')"], check=True)


def fails() -> None:
    with quiet():
        prints()
        raise LookupError


def test_output_is_kept_away(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        prints()
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('shown')"], check=True)
    assert capfd.readouterr().err == "shown"


def test_output_is_shown_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LookupError):
        fails()
    assert capfd.readouterr().err == "a warning"


def test_each_has_its_own_step(spark: SparkSession) -> None:
    """Whatever Spark notes of one thread: the step, and the settings that its tasks get."""
    both = Barrier(2, timeout=DEADLINE)

    def work(step: str) -> str | None:
        both.wait()
        begin_step(spark, step)
        both.wait()
        return spark.sparkContext.getLocalProperty("spark.jobGroup.id")

    assert in_parallel(spark, lambda: work("traffic"), lambda: work("intervals")) == ["traffic", "intervals"]
