"""All tables of one small fleet, held against what it went through; and the same from the same lines in any order."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from agent.core.export_event import SCHEMA
from agent.pipeline import files, options
from agent.pipeline.job import run
from agent.pipeline.schema import FAILURE_FIELDS, TABLES
from tests.pipeline.lines import BOUNDS, START, heartbeats, instant, line, write

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

ODD = "a{b}[c]*?%20 d"  # a path that looks like a pattern
HOUR = 3600
END = 48 * HOUR  # from noon before the night in which Berlin's clocks are put forward to noon after the next
FACTS: dict[str, str | None] = dict.fromkeys(FAILURE_FIELDS) | {"kind": "refused", "side": "upstream", "user": "eve"}
FAILED: dict[str, Any] = {"reason": "failed", "error": "login refused", "failure": FACTS}


@dataclass(frozen=True)
class Report:
    output: Path
    summary: dict[str, Any]
    spark: SparkSession

    def rows(self, table: str, **wanted: str) -> list[Row]:
        found = files.read_table(self.spark, table, output=str(self.output))
        for column, value in wanted.items():
            found = found.where(found[column] == value)
        return sorted(found.collect(), key=str) if table == "rejected" else found.orderBy("start", "link").collect()


def fleet() -> Iterator[dict[str, Any]]:
    for agent in ("a", "b"):
        yield line(-1, "started", agent=agent, interval=600)
        yield from heartbeats(599, END + 600, agent=agent, every=600)
    yield from outage("night", 12 * HOUR + 1800, 13 * HOUR + 1800)
    yield from outage("flaps", 100, 110)
    yield from outage("flaps", 140, 150)
    yield from outage("flaps", 400, 410)
    yield from (line(0, "running", link="open"), line(END - 100, "backoff", link="open", **FAILED))
    yield from (line(0, "running", link="paused"), line(1000, "paused", link="paused"))
    yield line(1600, "running", link="paused")
    yield line(0, "running", link="held")
    for at, status in ((100, "backoff"), (120, "paused"), (140, "backoff"), (150, "running"), (170, "backoff")):
        yield line(at, status, link="held")
    yield line(180, "running", link="held")
    yield from (line(0, "starting", link="fresh"), line(0.5, "running", link="fresh"))
    for number in range(3):
        yield from outage(f"shared-{number}", 5000 + 10 * number, 5600, upstream_cluster="far")
    for at, forwarded, counts in [
        (1, 5, [5, 5, 5, 5]),
        (299, 50, [5, 10, 50, 50]),
        (301, 60, [15, 20, 60, 60]),
        (700, 7, [0, 0, 0, 7]),
    ]:
        transfer = {"le": BOUNDS, "count": counts, "sum": 1.0}
        told: dict[str, Any] = {
            "forwarded": forwarded,
            "bytes": 10 * forwarded,
            "backlog": at % 100,
            "transfer": transfer,
        }
        yield line(at, "running", link="busy", agent="b", **told)


def outage(link: str, start: float, end: float, **told: Any) -> Iterator[dict[str, Any]]:
    yield line(0, "running", link=link, **told)
    yield line(start, "backoff", link=link, backlog=4, **FAILED, **told)
    yield line((start + end) / 2, "backoff", link=link, backlog=9, **told)
    yield line(end, "running", link=link, **told)


BAD = [
    '{"schema": 1, "type": "sample", "ts": "2026-03-',
    "not JSON",
    json.dumps(line(5, "asleep")),
    json.dumps(line(5, "running", forwarded=-1)),
    json.dumps(line(5, "heartbeat", interval=9e15)),
    json.dumps(line(5, "running", ts="1970-01-01T00:00:10.000000Z")),
    json.dumps(line(5, "running", ts="2999-01-01T00:00:10.000000Z")),
    json.dumps(line(5, "running", schema=SCHEMA + 1, novelty={"x": 1})),
]


def report(spark: SparkSession, directory: Path, promised: Path) -> Report:
    output = directory / "report"
    asked = ["--input", str(directory / "export"), "--output", str(output), "--timezone", "Europe/Berlin"]
    asked += ["--from", instant(0).isoformat(), "--to", instant(END).isoformat(), "--objectives", str(promised)]
    return Report(output, run(spark, options.parse(asked)), spark)


@pytest.fixture(scope="module")
def promised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("objectives") / ODD / "objectives.yaml"
    file.parent.mkdir()
    file.write_text("objectives:\n  up: {target: 99.9}\n  prompt: {target: 90, within: 0.5}\n")
    return file


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, promised: Path) -> Report:
    directory = tmp_path_factory.mktemp("fleet") / ODD
    write(directory / "export", *fleet(), *BAD)
    return report(spark, directory, promised)


@pytest.mark.thorough
def test_days_have_the_hours_that_they_have(made: Report) -> None:
    days = made.rows("availability", link="night", period="day")
    assert [(row["date"], row["up_seconds"], row["down_seconds"], row["incidents"]) for row in days] == [
        (date(2026, 3, 28), 11 * HOUR, 0, 0),
        (date(2026, 3, 29), 22 * HOUR, HOUR, 1),
        (date(2026, 3, 30), 14 * HOUR, 0, 0),
    ]
    assert [row["mttr_seconds"] for row in days] == [None, HOUR, None]
    hours = made.rows("availability", link="night", period="hour")
    assert len(hours) == 48
    assert [row["down_seconds"] for row in hours[12:14]] == [1800, 1800]


def test_buckets_sum_to_the_window(made: Report) -> None:
    intervals = files.read_table(made.spark, "intervals", output=str(made.output))
    sums = intervals.groupBy("link").sum("seconds").collect()
    assert {row[1] for row in sums} == {END}
    assert len(sums) == made.summary["links"] == 10


def test_incidents(made: Report) -> None:
    found = {
        (row["link"], float((row["start"].replace(tzinfo=START.tzinfo) - START).total_seconds())): row
        for row in made.rows("incidents")
    }
    assert {
        key: (float(row["seconds"]), float(row["down_seconds"]), row["flaps"], row["open"])
        for key, row in found.items()
    } == {
        ("flaps", 100): (50, 20, 1, False),
        ("flaps", 400): (10, 10, 0, False),
        ("held", 100): (80, 40, 1, False),
        ("night", 12.5 * HOUR): (HOUR, HOUR, 0, False),
        ("open", END - 100): (100, 100, 0, True),
        ("shared-0", 5000): (600, 600, 0, False),
        ("shared-1", 5010): (590, 590, 0, False),
        ("shared-2", 5020): (580, 580, 0, False),
    }
    night = found["night", 12.5 * HOUR]
    assert (night["status"], night["reason"], night["error"], night["peak_backlog"]) == (
        "backoff",
        "failed",
        "login refused",
        9,
    )
    assert night["failure"].asDict() == FACTS
    [down] = made.rows("intervals", link="night", bucket="down")
    assert down["failure"].asDict() == FACTS
    shared = [row for (link, _), row in found.items() if link.startswith("shared")]
    assert {(row["outage_scope"], row["outage_name"], row["outage_links"]) for row in shared} == {
        ("upstream", "far", 3)
    }
    assert len({row["outage"] for row in shared}) == 1
    assert [row["outage"] for row in found.values() if row not in shared] == [None] * 5


def test_pauses_are_kept_apart(made: Report) -> None:
    first, *_ = made.rows("availability", link="paused", period="hour")
    assert (first["paused_seconds"], first["availability_percent"], first["coverage_percent"]) == (600, 100, 100)
    assert first["availability_with_pauses_percent"] == pytest.approx(100 * 5 / 6)


def test_traffic(made: Report) -> None:
    rows = made.rows("traffic", link="busy")
    assert [(row["messages"], row["bytes"], row["peak_backlog"]) for row in rows] == [
        (50, 500, 99),
        (10, 100, 1),
        (7, 70, 0),
    ]
    assert rows[0]["rate"] == pytest.approx(50 / 300)
    assert rows[0]["transfer_p50_seconds"] == pytest.approx(0.1 + 0.9 * 15 / 40)
    assert rows[2]["transfer_p99_seconds"] == 1.0


def test_objectives(made: Report) -> None:
    rows = files.read_table(made.spark, "slo", output=str(made.output)).collect()
    found = {(row["link"], row["objective"]): row for row in rows}
    night = found["night", "up"]
    assert (night["total"], night["bad"]) == (END, HOUR)
    assert night["consumed_percent"] == pytest.approx(100 * HOUR / (END * 0.001))
    assert found["open", "up"]["burn_5m"] == pytest.approx(100 / 300 / 0.001)
    busy = found["busy", "prompt"]
    assert (busy["total"], busy["bad"]) == (67, 40 + 0 + 7)


def test_edges(made: Report) -> None:
    first = files.read_table(made.spark, "edges", output=str(made.output)).where("date = '2026-03-28'").collect()
    assert {(row["upstream_cluster"], row["cluster"], row["links"], row["messages"]) for row in first} == {
        ("there", "here", 7, 67),
        ("far", "here", 3, 0),
    }
    assert {row["upstream_cluster"]: row["worst_link"] for row in first}["far"] == "shared-0"


def test_bad_lines_are_counted_and_kept(made: Report) -> None:
    assert made.summary["lines"] == {"read": len([*fleet()]) + len(BAD), "bad": 7, "later_schema": 1}
    assert sorted(row["why"] for row in made.rows("rejected")) == [
        "impossible time", "impossible time", "incomplete", "incomplete", "incomplete", "later schema", "malformed",
        "malformed",
    ]  # fmt: skip
    assert {BAD[0], BAD[1]} <= {row["line"] for row in made.rows("rejected")}


@pytest.mark.thorough
def test_the_same_from_the_same_lines_in_any_order(made: Report, tmp_path: Path, promised: Path) -> None:
    mixed = [*fleet(), *fleet()]
    random.Random(4).shuffle(mixed)
    for part in range(3):
        write(tmp_path / "export", *mixed[part::3])
    again = report(made.spark, tmp_path, promised)
    for table in TABLES.keys() - {"rejected"}:
        one, other = (files.read_table(made.spark, table, output=str(which.output)) for which in (made, again))
        assert one.exceptAll(other).collect() == other.exceptAll(one).collect() == [], table
