"""The same tables, however lines come: at once, late, in any order, as a stream, and in spite of a kill."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from agent.pipeline import files, options
from agent.pipeline.job import STORE, follow, run
from agent.pipeline.reading import ledger
from agent.pipeline.reading.store import Store
from agent.pipeline.schema import TABLES
from tests.lab.waiting import eventually
from tests.pipeline.conftest import BRIEF
from tests.pipeline.lines import heartbeats, line, write

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

DAY = 24 * 3600


def fleet() -> Iterator[dict[str, Any]]:
    """Two days with an hour between them in which nobody was there, a takeover, and counters."""
    for agent, start in (("a", 0), ("b", 20), ("a", DAY)):
        yield line(start, "started", agent=agent)
        yield from heartbeats(start + 10, start + 1200, agent=agent)
    for start in (0, DAY):
        for number in range(0, 1200, 10):
            status = "backoff" if 300 <= number < 420 else "running"
            told: dict[str, Any] = {"forwarded": number * 3, "bytes": number, "backlog": number % 70}
            yield line(start + number + 1, status, type="sample", **told)
        yield from (line(start + 2, "running", link="m"), line(start + 333, "paused", link="m"))
    yield from (line(30, "standby", agent="b"), line(350, "running", agent="b"), line(400, "standby", agent="b"))


def sliced(chance: random.Random) -> list[list[dict[str, Any] | str]]:
    """Some lines come twice, all late, and one part is alone with its day: only some need to be read again."""
    lines = [*fleet()]
    first = [one for one in lines if one["ts"] < lines[0]["ts"][:10] + "T23"]
    second = [one for one in lines if one not in first]
    chance.shuffle(first)
    parts: list[list[dict[str, Any] | str]] = [[*first[part::3]] for part in range(3)]
    return [parts[0], [*second, *second[::7]], parts[1], [*parts[2], "torn {"], [*first[::5], "torn ["]]


def asked(directory: Path, output: Path, *more: str) -> options.Options:
    return options.parse(["--input", str(directory), "--output", str(output), *more])


def assert_same(spark: SparkSession, one: Path, other: Path) -> None:
    for name in TABLES:
        unlike = ["file"] if name == "rejected" else []
        mine, theirs = (files.read_table(spark, name, output=str(which)).drop(*unlike) for which in (one, other))
        assert sorted(map(str, mine.collect())) == sorted(map(str, theirs.collect())), name
    mine, theirs = (json.loads((which / "summary.json").read_text()) | {"run": ""} for which in (one, other))
    assert mine == theirs


@pytest.mark.thorough
def test_days_that_are_kept_as_one_change_with_what_comes_late_and_what_is_taken_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of days that are read one by one, four here instead of eight. A file is written again without a link, and without
    what made a slow start an outage days before."""
    monkeypatch.setattr(ledger, "COMPACT_FROM", 4)
    export, output, whole = tmp_path / "export", tmp_path / "report", tmp_path / "whole"
    slow = (line(1, "running", link="slow"), line(9, "starting", link="slow"), line(14, "running", link="slow"))
    for day in range(6):
        start = day * DAY
        spoken = slow if day == 0 else ()
        write(export, line(start, "started"), *heartbeats(start + 10, start + 600), line(start + 5, "running"), *spoken)
        Store(spark, f"{output}/{STORE}", [str(export)]).catch_up()
    reports = [asked(export, which, "--merge-gap", "300000") for which in (output, whole)]
    run(spark, reports[0])
    left = [path.name for path in (output / STORE).glob("batch=*")]
    assert len(left) < 4, left
    write(export, line(3 * DAY + 20, "backoff"), line(3 * DAY + 80, "running"))
    failed = line(3 * DAY + 30, "backoff", link="slow"), line(3 * DAY + 90, "running", link="slow")
    told = write(export, *failed, line(3 * DAY + 90, "running", link="x"))
    assert run(spark, reports[0])["links"] == 3
    told.write_text(json.dumps(line(3 * DAY + 30, "running", link="slow")) + "\n")
    assert run(spark, reports[0])["links"] == 2
    run(spark, reports[1])
    assert_same(spark, output, whole)


@pytest.mark.thorough
def test_a_stream_that_was_killed_and_lines_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    """Held against one run of the same lines in order, in one file."""
    export, output, whole = tmp_path / "export", tmp_path / "report", tmp_path / "whole"
    parts = sliced(random.Random(5))
    for part in parts:
        write(export, *part)
    write(tmp_path / "ordered", *sorted((one for part in parts for one in part), key=moment_of))
    arguments = ["--input", str(export), "--output", str(output), "--streaming", "--trigger", "available-now"]
    command = str(Path(sys.executable).with_name("federation-agent"))
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {BRIEF} pyspark-shell"}
    with subprocess.Popen(
        [command, "report", *arguments], env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    ) as killed:
        eventually(lambda: [*output.glob("_versions/*.draft/intervals")], 300, what="it makes tables")
        os.killpg(killed.pid, signal.SIGKILL)
    assert not any((output / name).exists() for name in (*TABLES, "summary.json", "report.html"))
    follow(spark, options.parse(arguments))
    run(spark, asked(tmp_path / "ordered", whole))
    assert_same(spark, output, whole)


def moment_of(told: dict[str, Any] | str) -> str:
    """Those that are torn come first."""
    return "" if isinstance(told, str) else str(told["ts"])


def test_batches_that_reach_around_another_together_are_read_with_it(spark: SparkSession, tmp_path: Path) -> None:
    """Of link `l`, the second comes before the third before the first; of `m` only the last two overlap."""
    export, output = tmp_path / "export", tmp_path / "report"
    store = Store(spark, f"{output}/{STORE}", [str(export)])
    for parts in (
        (line(60, "running"), line(70, "backoff")),
        (line(80, "backoff"), line(90, "running"), line(10, "running", link="m"), line(30, "running", link="m")),
        (line(10, "running"), line(50, "running"), line(20, "running", link="m"), line(40, "running", link="m")),
    ):
        write(export, *parts)
        store.catch_up()
    assert len(store.ledger.batches) == 1


@pytest.mark.thorough
def test_files_that_hold_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "export")
    summary = run(spark, asked(tmp_path / "export", tmp_path / "report"))
    assert (summary["lines"], summary["links"]) == ({"read": 0, "bad": 0, "later_schema": 0}, 0)
    for name in TABLES:
        table = spark.read.parquet(f"{tmp_path}/report/{name}")
        assert (table.count(), set(table.columns)) == (0, set(files.columns(name).names)), name
    assert "No data on links in this window" in (tmp_path / "report/report.html").read_text()
