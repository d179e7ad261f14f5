"""What stands in the report's way is told in a line that says what to do."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from agent.errors import CannotStartError
from agent.pipeline import files
from agent.pipeline.reading import parsing
from agent.pipeline.reading.store import finished_files
from agent.pipeline.spark import java_problem
from agent.pipeline.versions import only_writer
from tests.acceptance.command import COMMAND, federation_agent
from tests.lab.waiting import DEADLINE, eventually
from tests.pipeline.lines import line, write

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine


def java_of(directory: Path, says: str) -> Path:
    """A JAVA_HOME whose Java is as old as can be told."""
    program = directory / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return directory


OLD = "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2; exit 0"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (OLD, "is Java 11, which is too old"),
        ("echo 'java version \"1.8.0_292\"' >&2", "is Java 8, which is too old"),
        ("exit 1", "does not run"),
        (
            "echo 'Could not reserve enough space'; exit 1",
            "Could not reserve enough space; fix that, for example a limit",
        ),
        ("echo 'openjdk version \"21\"' >&2", "which is Java 21: see its output above"),
    ],
)
def test_what_is_wrong_with_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path, says)))
    assert told in java_problem()


def test_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_problem().startswith("Java is not installed; Spark needs Java 17 or later: install it")


def test_the_command_says_so(tmp_path: Path) -> None:
    home = java_of(tmp_path, f"case $1 in -version) {OLD};; esac; exit 1")
    done = federation_agent("report", "--input", tmp_path, "--output", tmp_path / "out", JAVA_HOME=str(home))
    assert (done.status, done.out) == (3, "")
    assert "is Java 11, which is too old; Spark needs Java 17 or later" in done.errors[-1]


def test_inputs_are_looked_at_first(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CannotStartError, match="nowhere: does not exist"):
        files.check_inputs(spark, [str(tmp_path), f"{tmp_path}/nowhere"])
    (tmp_path / "date=2026-01-01").mkdir()
    (tmp_path / "date=2026-01-01/a-1-1.jsonl.part").write_text("{}\n")
    with pytest.raises(CannotStartError, match=r"there is no finished file \(\*\.jsonl\)"):
        files.check_inputs(spark, [str(tmp_path)])
    write(tmp_path, line(0, "running"))
    files.check_inputs(spark, [str(tmp_path)])
    files.check_inputs(spark, [f"{tmp_path.parent}/*"])


def test_the_output_is_tried_first(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CannotStartError, match=r"file/out: can't be written: .*; give a writable directory"):
        files.check_output(spark, f"{tmp_path}/file/out")
    files.check_output(spark, f"{tmp_path}/out")
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == []


def test_objectives_are_read_before_spark_starts(tmp_path: Path) -> None:
    asked: list[str | Path] = [
        "--input",
        tmp_path,
        "--output",
        tmp_path / "out",
        "--objectives",
        tmp_path / "missing.yaml",
    ]
    done = federation_agent("report", *asked, JAVA_HOME="/nowhere")
    assert (done.status, done.out, len(done.errors)) == (3, "", 1)
    assert "missing.yaml: can't be read: No such file or directory; give a YAML file" in done.err
    (tmp_path / "missing.yaml").write_text("objectives: {a: {target: 200}}")
    assert "give a percentage above 0" in federation_agent("report", *asked, JAVA_HOME="/nowhere").err


def test_one_report_at_a_time(tmp_path: Path) -> None:
    with only_writer(str(tmp_path)):
        done = federation_agent("report", "--input", tmp_path, "--output", tmp_path, JAVA_HOME="/nowhere")
    assert (done.status, len(done.errors)) == (3, 1)
    assert "another report is writing there" in done.err
    with only_writer(str(tmp_path)), only_writer("s3a://bucket/report"):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_a_line(tmp_path: Path, number: signal.Signals) -> None:
    home = java_of(tmp_path, "touch $JAVA_HOME/began; until [ -e $JAVA_HOME/over ]; do sleep 0.1; done")
    command: list[str | Path] = [COMMAND, "report", "--input", tmp_path, "--output", tmp_path / "out"]
    environment = os.environ | {"JAVA_HOME": str(home)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        eventually((tmp_path / "began").exists)
        running.send_signal(number)
        running.wait(DEADLINE)
        (tmp_path / "over").touch()
        assert running.stderr
        errors = running.stderr.read().splitlines()
    assert running.returncode == 128 + number
    # What follows is of the script that would have started Java.
    assert errors[0] == f"federation-agent: report: ended by {number.name}"


def test_paths_that_look_like_patterns(spark: SparkSession, tmp_path: Path) -> None:
    """Whole reports from and to such a path, with objectives in it, are those of `tables/test_update.py`."""
    odd = tmp_path / "a{b}[c]*?%20 d"
    file = write(odd, line(0, "running"), line(60, "running"))
    files.check_inputs(spark, [str(odd)])
    [found] = finished_files(spark, [str(odd)])
    assert found.path.endswith(file.name)
    assert parsing.read(spark, [files.escaped(found.path)]).count() == 2


def test_the_reason_of_sparks_errors_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part.parquet").write_text("no table")
    with pytest.raises(Exception, match="parquet") as told:
        spark.read.schema("a string").parquet(str(tmp_path)).collect()
    reason = files.reason(told.value)
    assert "is not a Parquet file" in reason
    assert "\n" not in reason
    assert len(reason) <= 300
