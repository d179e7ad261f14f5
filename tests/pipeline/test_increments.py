"""The same tables, however lines come: at once, bit by bit, in any order, as a stream, and in spite of a kill."""

import json
import os
import random
import shutil
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

SLICES = 5
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


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export")
    for part in sliced(random.Random(5)):
        write(directory, *part)
    return directory


@pytest.fixture(scope="module")
def whole(spark: SparkSession, export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("whole")
    run(spark, asked(export, output))
    return output


def assert_same(spark: SparkSession, one: Path, other: Path) -> None:
    for name in TABLES:
        unlike = ["file"] if name == "rejected" else []
        mine, theirs = (files.read_table(spark, name, output=str(which)).drop(*unlike) for which in (one, other))
        assert sorted(map(str, mine.collect())) == sorted(map(str, theirs.collect())), name
    mine, theirs = (json.loads((which / "summary.json").read_text()) | {"run": ""} for which in (one, other))
    assert mine == theirs


def written(output: Path) -> dict[Path, int]:
    """What readers see, and what is kept between runs, by its name there."""
    places = (output / "current").resolve(), output / STORE
    found = {file.relative_to(place): file for place in places for file in place.rglob("*") if file.suffix != ".crc"}
    return {name: file.stat().st_mtime_ns for name, file in found.items() if file.is_file()}


@pytest.mark.thorough
def test_bit_by_bit(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """Reading follows every part, tables follow the second and the last."""
    output, export = tmp_path / "report", tmp_path / "export"
    unfinished = output / STORE / "batch=1/part-0.snappy.parquet"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(b"cut off")  # what is left of a run that was killed while it read
    before: dict[Path, int] = {}
    for number, part in enumerate(sliced(random.Random(5))):
        write(export, *part)
        if number == SLICES - 1:
            # A day that has no rows any more goes, as one does that never had any.
            shutil.copytree(output / "availability/date=2026-03-28", output / "availability/date=2020-01-01")
            half_written = output / "traffic/.spark-staging-1/date=2026-03-28"
            half_written.mkdir(parents=True)
        if number in (1, SLICES - 1):
            before = written(output)
            run(spark, asked(export, output))
        else:
            Store(spark, f"{output}/{STORE}", [str(export)]).catch_up()
    assert_same(spark, output, whole)
    assert not unfinished.exists()
    assert not (output / "traffic/.spark-staging-1").exists()
    after = written(output)
    # What came since the second part is of the first day: what was made of the other one stands as it stood.
    kept = [file for file in before if "date=2026-03-29" in str(file) and "traffic" in str(file)]
    assert kept
    assert all(after.get(file) == before[file] for file in kept)
    run(spark, asked(export, output))
    assert written(output) == after


@pytest.mark.thorough
def test_many_small_batches_are_kept_as_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of days that are read one by one, four here instead of eight; lines that come late for one of them change what
    they have to."""
    monkeypatch.setattr(ledger, "COMPACT_FROM", 4)
    export, output, whole = tmp_path / "export", tmp_path / "report", tmp_path / "whole"
    for day in range(6):
        start = day * DAY
        write(export, line(start, "started"), *heartbeats(start + 10, start + 600), line(start + 5, "running"))
        Store(spark, f"{output}/{STORE}", [str(export)]).catch_up()
    run(spark, asked(export, output))
    left = [path.name for path in (output / STORE).glob("batch=*")]
    assert len(left) < 4, left
    write(export, line(3 * DAY + 20, "backoff"), line(3 * DAY + 80, "running"))
    run(spark, asked(export, output))
    run(spark, asked(export, whole))
    assert_same(spark, output, whole)


@pytest.mark.thorough
def test_a_stream_that_was_killed(spark: SparkSession, export: Path, whole: Path, tmp_path: Path) -> None:
    output, command = tmp_path / "report", str(Path(sys.executable).with_name("federation-agent"))
    arguments = ["--input", str(export), "--output", str(output), "--streaming", "--trigger", "available-now"]
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {BRIEF} pyspark-shell"}
    with subprocess.Popen(
        [command, "report", *arguments], env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    ) as killed:
        eventually(lambda: [*output.glob("_versions/*.draft/intervals")], 300, what="it makes tables")
        os.killpg(killed.pid, signal.SIGKILL)
    assert not any((output / name).exists() for name in (*TABLES, "summary.json", "report.html"))
    follow(spark, options.parse(arguments))
    assert_same(spark, output, whole)


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
