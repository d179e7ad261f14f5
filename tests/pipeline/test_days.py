"""Days that come one after the other, and late: what stands after each is what making everything anew gives."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from agent.pipeline import options
from agent.pipeline.job import STORE, run
from agent.pipeline.reading.store import Store
from tests.pipeline.courses import COUNTED, Books, Lag
from tests.pipeline.lines import BOUNDS, line, write
from tests.pipeline.lines import of_standby as of_standby_line
from tests.pipeline.reference import VERDICTS
from tests.pipeline.test_increments import assert_same

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

HOUR = 3600
DAY = 24 * HOUR
DAYS = 4
EVERY = 250
BREAK = "2026-03-31T01"
STATUSES = ("running", "running", "backoff", "starting", "blocked", "paused", "standby")
SEED = int(os.environ.get("FEDERATION_AGENT_SEED", "3"))
OBJECTIVES = "objectives: {up: {target: 99.0, days: 2}, prompt: {target: 95, days: 3, within: 0.1}}"

Line = dict[str, Any]


class Speaker:
    """An agent's word on one link, with counters that begin anew with it."""

    def __init__(self, chance: random.Random, agent: str, link: str) -> None:
        self._chance, self._agent, self._link = chance, agent, link
        self._status, self._forwarded = "starting", 0
        self._counts = [0] * (len(BOUNDS) + 1)
        self._books = Books(random.Random(f"{agent} {link}"))
        self._lag = Lag(random.Random(f"lag of {agent} {link}"))

    def begins_anew(self) -> None:
        self._forwarded, self._counts = 0, [0] * (len(BOUNDS) + 1)
        self._books = Books(self._books.chance)

    def lines(self, at: float, seq: int) -> Iterator[Line]:
        if self._chance.random() < 0.01:
            self._status = self._chance.choice(STATUSES)
            yield self._line(at - self._chance.uniform(1, EVERY / 2), "transition", seq)
        if self._chance.random() > 0.02:
            yield self._line(at, "sample", seq + 1)

    def _line(self, at: float, kind: str, seq: int) -> Line:
        if self._status == "running":
            gained = sorted(self._chance.randrange(50) for _ in self._counts)
            self._counts = [now + more for now, more in zip(self._counts, gained, strict=True)]
            self._forwarded += gained[-1]
        told: Line = {"type": kind, "forwarded": self._forwarded, "backlog": self._chance.randrange(9)}
        told["transfer"] = {"le": BOUNDS, "count": self._counts, "sum": 1.0} if kind == "sample" else None
        counts = self._books.moved(flows=self._status == "running")
        told |= {} if counts is None else {"schema": 3} | dict(zip(COUNTED, counts, strict=True))
        told["lag_is_critical"] = None if counts is None or self._link == "l3" else self._lag.now()
        uri = "amqp://second" if self._link == "l1" and at > 3 * DAY else "amqp://first"
        return line(at, self._status, agent=self._agent, link=self._link, seq=seq, uri=uri, **told)


def fleet(chance: random.Random) -> Iterator[tuple[str, Line]]:
    """Lines with the run of the agent that wrote them. Two replicas; one link is born late, another one dies."""
    for agent in ("a", "b"):
        speakers = [Speaker(chance, agent, f"l{number}") for number in range(4)]
        number, seq, away = 0, 0, 0.0
        of_standby, verdict = random.Random(f"standby of {agent}"), "in_step"
        for step in range(DAYS * DAY // EVERY):
            at = step * EVERY + (17 if agent == "b" else 0)
            if step == 0 or (at > away and chance.random() < 0.003):
                number, seq = number + 1, 1
                away = at + chance.choice([0, 0, 5 * HOUR, 30 * HOUR])
                for speaker in speakers:
                    speaker.begins_anew()
                yield (
                    f"{agent}-{number}",
                    line(at + 1, "started", agent=agent, seq=1, group=None, cluster=None, interval=EVERY),
                )
            if at + 2 < away:
                continue
            seq += 10
            yield f"{agent}-{number}", line(at + 2, "heartbeat", agent=agent, seq=seq, group="g", interval=EVERY)
            if of_standby.random() < 0.98:
                verdict = of_standby.choice((*VERDICTS, *[verdict] * 60))
                spoken = of_standby_line(at + 2.5, verdict, agent=agent, seq=seq + 8, error=f"it is {verdict}")
                yield f"{agent}-{number}", spoken
            for place, speaker in enumerate(speakers):
                born, dead = (2.6 * DAY if place == 2 else 0), (1.5 * DAY if place == 3 else DAYS * DAY)
                if born <= at < dead:
                    for one in speaker.lines(at + 3 + place, seq + 1):
                        yield f"{agent}-{number}", one


def written(directory: Path, lines: list[tuple[str, Line]], part: int) -> None:
    """A file for each run, as agents name them."""
    runs: dict[str, list[Line]] = {}
    for name, one in lines:
        runs.setdefault(name, []).append(one)
    for name, ones in runs.items():
        write(directory / "scratch", *ones).rename(_file(directory, f"{name}-{part}.jsonl"))


def _file(directory: Path, name: str) -> Path:
    folder = directory / "in"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def asked(export: Path, output: Path) -> options.Options:
    rules = output.parent / "objectives.yaml"
    rules.write_text(OBJECTIVES)
    zone = ["--timezone", "Europe/Berlin", "--objectives", str(rules)]
    return options.parse(["--input", str(export / "in"), "--output", str(output), *zone])


def on_disk(output: Path) -> dict[Path, int]:
    """What readers see, and what is kept between runs, by its name there."""
    places = (output / "current").resolve(), output / STORE
    found = {file.relative_to(place): file for place in places for file in place.rglob("*") if file.suffix != ".crc"}
    return {name: file.stat().st_mtime_ns for name, file in found.items() if file.is_file()}


@pytest.mark.thorough
def test_what_comes_later_is_added_as_if_all_had_been_there(spark: SparkSession, tmp_path: Path) -> None:
    """What killed runs left is gone, a day that nothing changes stands, and so does all where nothing is new."""
    chance = random.Random(SEED)
    every = [*fleet(chance)]
    late = chance.sample([one for one in every if "2026-03-30T12" < one[1]["ts"] < BREAK], 30)
    export, output, whole = (tmp_path / name for name in ("export", "report", "whole"))
    unfinished = output / STORE / "batch=1/part-0.snappy.parquet"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(b"cut off")
    written(export, [one for one in every if one[1]["ts"] < BREAK and one not in late], 0)
    run(spark, asked(export, output))
    first = Store(spark, f"{output}/{STORE}", [str(export / "in")]).ledger
    assert not unfinished.exists()

    # A day that has no rows any more goes, as one does that never had any.
    shutil.copytree(output / "availability/date=2026-03-28", output / "availability/date=2020-01-01")
    half_written = output / "traffic/.spark-staging-1"
    (half_written / "date=2026-03-28").mkdir(parents=True)
    before = on_disk(output)
    written(export, [*late, *(one for one in every if one[1]["ts"] >= BREAK)], 1)
    run(spark, asked(export, output))
    second = Store(spark, f"{output}/{STORE}", [str(export / "in")]).ledger
    assert 0 < first.settled < second.settled
    assert 0 < second.settled_lines < second.content().kept / 4
    assert not half_written.exists()
    after = on_disk(output)
    kept = [file for file in before if file.parts[0] == "standby" and "date=2026-03-28" in file.parts]
    assert kept
    assert {file: after.get(file) for file in kept} == {file: before[file] for file in kept}
    run(spark, asked(export, output))
    assert on_disk(output) == after
    run(spark, asked(export, whole))
    assert_same(spark, output, whole)
