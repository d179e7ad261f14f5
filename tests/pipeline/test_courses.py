"""Groups drawn by chance have the statuses, incidents and accounts of the reference, to the microsecond and to the
message: one run for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline.reading import parsing, thinning
from agent.pipeline.schema import CELL, KEPT_LINES
from agent.pipeline.spark import literal_table
from agent.pipeline.tables.availability import availability
from agent.pipeline.tables.incidents import incidents as found_incidents
from agent.pipeline.tables.incidents import outages
from agent.pipeline.tables.intervals import agent_reports, intervals, link_attributes, standby
from agent.pipeline.tables.traffic import account, cells
from agent.pipeline.window import Bounds, micros
from tests.pipeline import reference
from tests.pipeline.courses import SECOND, Course, courses
from tests.pipeline.lines import START, write

# Spark on a busy machine. What each of the rules does is shown by hand in `tables`.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]

END = 1500
GAP = 60 * SECOND
SEED = int(os.environ.get("FEDERATION_AGENT_SEED", "11"))
COUNT = int(os.environ.get("FEDERATION_AGENT_COURSES", "60"))


def test_courses_are_told_as_the_reference_tells_them(spark: SparkSession, tmp_path: Path) -> None:
    made = [*courses(SEED, COUNT, END)]
    paths = []
    for one in made:
        for run, told in one.files.items():
            place = tmp_path / "in" / f"{run}-1.jsonl"
            place.parent.mkdir(parents=True, exist_ok=True)
            paths.append(str(write(tmp_path / "scratch", *told).rename(place)))
    within = Bounds(micros(START), micros(START) + END * SECOND)
    thinning.thin(parsing.read(spark, paths)).write.parquet(str(tmp_path / "kept"))
    lines = spark.read.schema(KEPT_LINES).parquet(str(tmp_path / "kept")).where("why is null").persist()
    links = link_attributes(lines.where("link is not null and type != 'standby'")).persist()
    every = thinning.with_lives(lines, thinning.lives(lines, within)).persist()
    stood = standby(agent_reports(every.where("type = 'standby'"), within), within).orderBy("group", "start").collect()
    placed = every.where("type != 'standby'")
    found = intervals(agent_reports(placed, within), links, within).persist()
    spans: dict[tuple[str, str], list[Any]] = {}
    for row in found.orderBy("group", "link", "start").collect():
        span = (row["start"] - within.start, row["end"] - within.start, row["status"])
        spans.setdefault((row["group"], row["link"]), []).append(span)
    failed: dict[tuple[str, str], list[Any]] = {key: [] for key in spans}
    failing = found_incidents(outages(found, merge_gap=GAP), within)
    for row in failing.orderBy("start").collect():
        incident = (row["start"] - within.start, row["end"] - within.start, row["down"], row["flaps"])
        failed[row["group"], row["link"]].append(incident)
    known = {
        (one.group, link): course
        for one in made
        for link, course in reference.timelines(one.said, 0, END * SECOND).items()
    }
    assert spans.keys() == known.keys()
    wrong = {key: (set(spans[key]) ^ set(known[key]), spans[key]) for key in known if spans[key] != known[key]}
    assert not wrong, _differences(made, wrong)
    assert failed == {key: reference.incidents(course, GAP) for key, course in known.items()}
    lags = {(one.group, *row) for one in made for row in reference.critical(one.said, 0, END * SECOND).items()}
    assert _critical(found, failing, within) == lags
    assert len({critical for *_, critical in lags}) > COUNT / 2, "planted"
    books = {(one.group, *key): row for one in made for key, row in reference.accounts(_within(one), CELL).items()}
    counted = cells(placed, within).persist()
    assert _accounts(counted, within) == books
    moving = {(one.group, *key): row for one in made for key, row in reference.moving(_within(one), CELL).items()}
    assert _moving(counted, within) == moving
    assert len(set(moving.values())) > 10, "planted"
    assert sum(abs(row[-1] or 0) for row in books.values()) > COUNT, "planted"
    _check_standbys(made, stood, within)
    for each in (lines, links, every, found, counted):
        each.unpersist()


def _within(course: Course) -> Iterator[reference.Said]:
    return (one for one in course.said if 0 < one.at <= END * SECOND)


def _check_standbys(made: list[Course], stood: list[Row], within: Bounds) -> None:
    spans: dict[str, list[reference.Span]] = {one.group: [] for one in made}
    for row in stood:
        assert row["error"] == f"it is {row['status']}"
        spans[row["group"]].append((row["start"] - within.start, row["end"] - within.start, row["status"]))
    assert spans == {one.group: reference.standby(one.of_standby, 0, END * SECOND) for one in made}
    assert {status for each in spans.values() for *_, status in each} == {*reference.VERDICTS}, "planted"


def _critical(found: DataFrame, failing: DataFrame, within: Bounds) -> set[tuple[str, str, int | None]]:
    """For how long each link's lag was critical: the sum of five minutes each, which is that of the day."""
    table = _five_minutes(found.sparkSession, within)
    rows = availability(found, failing, table, within).groupBy("group", "link", "period")
    sums = rows.agg(fn.sum("lag_critical_seconds").alias("critical")).collect()
    by_period = {
        period: {
            (row["group"], row["link"], None if row["critical"] is None else int(row["critical"] * SECOND))
            for row in sums
            if row["period"] == period
        }
        for period in ("hour", "day")
    }
    assert by_period["hour"] == by_period["day"]
    return by_period["hour"]


def _five_minutes(spark: SparkSession, within: Bounds) -> DataFrame:
    """As if each were an hour."""
    hours = [
        {"hour_start": at, "hour_end": min(at + CELL, within.end), "day": START.date()}
        for at in range(within.start, within.end, CELL)
    ]
    return literal_table(spark, hours, "hour_start bigint, hour_end bigint, day date")


def _moving(counted: DataFrame, within: Bounds) -> dict[tuple[str, str, int], tuple[int | None, str | None]]:
    rows = counted.select("group", "link", "cell", "last_backlog", "moves_from").collect()
    return {(row[0], row[1], row[2] - within.start // CELL): (row[3], row[4]) for row in rows}


def _accounts(counted: DataFrame, within: Bounds) -> dict[tuple[str, str, int], tuple[int | None, ...]]:
    """By five minutes; and each link's day is the sum of them."""
    table = _five_minutes(counted.sparkSession, within)
    columns = ("taken", "forwarded", "given_back", "in_flight_start", "in_flight_end", "unexplained")
    found = account(counted, table, within)
    rows = found.select("group", "link", "period", fn.unix_micros("start"), *columns).collect()
    by_hour = {(row[0], row[1], (row[3] - within.start) // CELL): _row(row) for row in rows if row[2] == "hour"}
    for row in (row for row in rows if row[2] == "day"):
        of_link = [each for (group, link, _), each in sorted(by_hour.items()) if (group, link) == (row[0], row[1])]
        if all(each[0] is not None for each in of_link):
            sums = [sum(each[place] or 0 for each in of_link) for place in (0, 1, 2, 5)]
            assert (*sums[:3], of_link[0][3], of_link[-1][4], sums[3]) == _row(row)
        else:
            assert _row(row) == (None,) * 6
    return by_hour


def _row(row: Row) -> tuple[int | None, ...]:
    """What passed is known of agents too that don't count what they take."""
    return tuple(row[4:]) if row["taken"] is not None else (None,) * 6


def _differences(made: list[Course], wrong: dict[tuple[str, str], Any]) -> str:
    """The first ones, with the lines before and after."""
    told = [f"{len(wrong)} links differ"]
    for (group, link), (unlike, spans) in [*wrong.items()][:3]:
        first = min(at for span in unlike for at in span[:2])
        [said] = [course.said for course in made if course.group == group]
        near = [one for one in sorted(said) if abs(one.at - first) < 120 * SECOND and one.link in ("", link)]
        told += [f"{group} {link}", *(f"{'found' if one in spans else 'known'} {one}" for one in sorted(unlike)[:6])]
        told += map(str, near)
    return "\n".join(told)
