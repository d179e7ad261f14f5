"""What stands in the report's way is told in a line that says what to do."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from agent.errors import CannotStartError
from agent.pipeline.spark import files, java
from tests.acceptance.command import federation_agent
from tests.pipeline.lines import line, write


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
        ("echo 'openjdk version \"21\"' >&2", "which is Java 21: see its output above"),
    ],
)
def test_what_is_wrong_with_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path, says)))
    assert told in java.what_is_wrong()


def test_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.what_is_wrong().startswith("Java is not installed; Spark needs Java 17 or later: install it")


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
