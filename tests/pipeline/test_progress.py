"""How far a report is: what a terminal shows, and that programs see nothing of it."""

import json
import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from agent.cli import report
from agent.pipeline.spark import PUBLISH, READ, STEPS, begin_step
from tests.acceptance.command import COMMAND
from tests.pipeline.conftest import BRIEF
from tests.pipeline.lines import heartbeats, line, write

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine


def test_the_step_and_its_tasks_are_known_while_it_runs(spark: SparkSession) -> None:
    begin_step(spark, READ)
    assert report.progress_of(spark) == ("working", 0, 0)
    seen: list[tuple[str, int, int]] = []

    def is_seen() -> bool:
        steps, numbers = {(step, total) for step, _, total in seen}, {done for _, done, _ in seen}
        return (STEPS[READ], 16) in steps and len(numbers) > 1

    with report.watching(lambda: seen.append(report.progress_of(spark))):
        for _ in range(10):  # on a busy machine nobody may look for seconds
            spark.range(0, 16, 1, 16).select(fn.expr("java_method('java.lang.Thread', 'sleep', 300L)")).collect()
            if is_seen():
                break
    assert is_seen()


@pytest.mark.thorough
def test_a_terminal_sees_it_and_a_program_gets_json_alone(tmp_path: Path) -> None:
    write(tmp_path / "in", line(0, "running"), line(20, "backoff"), *heartbeats(0, 60))
    asked: list[str | Path] = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--format", "json"]
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "PYSPARK_SUBMIT_ARGS": f"{BRIEF} pyspark-shell"}
    with subprocess.Popen(
        [COMMAND, "report", *asked, "--master", "local[2]"], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as run:
        os.close(theirs)
        seen = b"".join(iter(lambda: read(ours), b"")).decode()
        assert run.stdout
        printed = run.stdout.read()
    os.close(ours)
    assert run.returncode == 0, seen
    assert json.loads(printed) == json.loads((tmp_path / "out/summary.json").read_text())
    assert STEPS[PUBLISH] in seen


def read(terminal: int) -> bytes:
    """Nothing once whoever wrote has gone, which is an error to Linux."""
    with suppress(OSError):
        return os.read(terminal, 65536)
    return b""
