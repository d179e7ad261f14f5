"""What became of messages, by lines written by hand."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.core.export_event import SCHEMA
from agent.pipeline import files
from agent.pipeline.reading import parsing, thinning
from agent.pipeline.reading.ledger import Batch, Content
from agent.pipeline.reading.parsing import LATER
from agent.pipeline.reading.store import Store
from agent.pipeline.schema import INPUT, KEPT_LINES, SECOND, UPSTREAM_COUNTERS
from agent.pipeline.spark import literal_table, settings_for_rows
from agent.pipeline.tables.traffic import account, cells, with_other_consumers
from agent.pipeline.window import Bounds, micros
from tests.pipeline.lines import START, heartbeats, line, write
from tests.pipeline.reports import Report

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

WITHIN: Final = Bounds(micros(START), micros(START) + 200 * SECOND)
COLUMNS = ("taken", "forwarded", "given_back", "in_flight_start", "in_flight_end", "unexplained")

UPSTREAM = (
    *("entered", "acknowledged", "expired", "uncounted", "repeated", "backlog_start", "backlog_end"),
    "unexplained_upstream",
)


def counted(seconds: float, taken: int, forwarded: int, back: int, unsettled: int, **told: Any) -> dict[str, Any]:
    numbers: dict[str, Any] = {"taken": taken, "forwarded": forwarded, "given_back": back, "unsettled": unsettled}
    return line(seconds, "running", type="sample", schema=2, **numbers, **told)


MOVED: Final = (
    line(0, "started"),
    *heartbeats(10, 90),
    counted(5, 100, 80, 5, 15),  # and dies with 15 in flight
    line(100, "started", seq=1),
    *(one | {"seq": number} for number, one in enumerate(heartbeats(110, 190), 10)),
    counted(105, 40, 30, 0, 9, seq=5),  # one is missing
    line(0, "started", agent="b"),
    *heartbeats(10, 190, agent="b"),
    counted(150, 7, 8, 0, 0, agent="b", link="m"),  # one was counted twice
    line(20, "running", type="sample", forwarded=50, agent="b", link="old"),
    *heartbeats(-110, 190, agent="c"),  # it is another one from 20 on: agents are updated by a restart
    line(-100, "running", type="sample", forwarded=50, agent="c", link="updated"),
    counted(20, 60, 60, 0, 0, agent="c", link="updated"),
)


def compared(seconds: float, *numbers: int, **told: Any) -> dict[str, Any]:
    """By the fields from `looks` to `settled_again`."""
    upstream: dict[str, Any] = dict(zip(UPSTREAM_COUNTERS, numbers, strict=True)) | {"growth": 0, "waiting": 9}
    flowed = numbers[3] + told.pop("since", 0)
    return counted(seconds, flowed, flowed, 0, 0) | {"schema": 3} | upstream | told


COMPARED: Final = (
    line(0, "started"),
    *heartbeats(10, 190),
    line(0, "started", agent="b"),
    *heartbeats(10, 190, agent="b"),
    compared(5, 1, 0, 0, 0, 0, waiting=4),
    compared(15, 2, 100, 90, 93, 5, growth=3, waiting=7),  # 7 expired; 3 were forwarded twice
    compared(50, 2, 100, 90, 93, 5, growth=3, waiting=7, since=100),  # much moves, and nothing is compared
    compared(60, 2, 100, 90, 93, 5, growth=3, waiting=7, since=100, status="standby"),
    compared(61, 1, 0, 0, 0, 0, agent="b", waiting=8),  # what came in between is in no column
    compared(70, 3, 20, 20, 20, 0, agent="b", waiting=8),
    compared(90, 2, 100, 90, 93, 5, growth=3, waiting=7, since=100, status="standby"),  # what it saw last
    compared(15, 2, 10, 12, 11, 0, growth=1, link="others"),  # 3 came uncounted, and 1 was taken by another
    compared(15, 2, 10, 10, 12, 1, link="twice"),  # 1 more than came again
    compared(15, 0, 0, 0, 0, 0, since=70, link="busy", waiting=None),
    counted(15, 70, 70, 0, 0, link="old"),
)


def told_by_hand() -> Iterator[dict[str, Any]]:
    yield from (one | {"group": "g-moved"} for one in MOVED)
    yield from (one | {"group": "g-compared"} for one in COMPARED)


def test_a_restart_an_update_and_lines_that_count_nothing(told: Report) -> None:
    assert of_links(told, "g-moved", COLUMNS) == {
        "l": (140, 110, 20, 0, 9, 1),
        "m": (7, 8, 0, 0, 0, -1),
        "old": (None, 50, None, None, None, None),
        "updated": (60, 60, 0, 0, 0, 0),
    }


def test_the_queue_upstream(told: Report) -> None:
    assert of_links(told, "g-compared", UPSTREAM) == {
        "l": (120, 110, 7, 0, 3, 5, 8, 0),
        "others": (10, 12, 0, 3, 0, 8, 9, 1),
        "twice": (10, 10, 0, 0, 1, 9, 9, -1),
        "busy": (None,) * 8,
        "old": (None,) * 8,
    }


def test_the_queue_of_a_queue_link_has_other_consumers(spark: SparkSession) -> None:
    rows = [{"kind": kind, "repeated": 1, "unexplained_upstream": 5, "entered": 7} for kind in ("exchange", "queue")]
    table = literal_table(spark, rows, "kind string, repeated bigint, unexplained_upstream bigint, entered bigint")
    found = with_other_consumers(table).collect()
    assert [(row["repeated"], row["unexplained_upstream"], row["entered"]) for row in found] == [
        (1, 5, 7),
        (None, None, 7),
    ]


@pytest.mark.thorough
def test_lines_kept_by_an_earlier_version(spark: SparkSession, tmp_path: Path) -> None:
    """It knew no `taken`, and rejected the lines that have it: these are read again."""
    export = tmp_path / "export"
    store = Store(spark, str(tmp_path / "_lines"), [str(export)])
    parts = (
        (line(0, "started"), *heartbeats(10, 190), line(20, "running", type="sample", forwarded=50, link="old")),
        (line(0, "started", agent="b"), *heartbeats(10, 190, agent="b"), counted(20, 9, 8, 0, 0, agent="b")),
    )
    for part in parts:
        write(export, *part)
        store.catch_up()
    as_an_earlier_version_left_it(store, rejected=store.ledger.batches[1])

    later = Store(spark, store.directory, [str(export)])
    later.catch_up()
    assert [(one.number, one.schema, one.content.later_schema) for one in later.ledger.batches] == [
        (1, 1, 0),
        (3, SCHEMA, 0),
    ]
    assert accounts(later.lines(0)) == {
        "old": (None, 50, None, None, None, None),
        "l": (9, 8, 0, 0, 0, 1),
    }
    later.catch_up()
    assert later.ledger.next_number == 4


def as_an_earlier_version_left_it(store: Store, *, rejected: Batch) -> None:
    for batch in store.ledger.batches:
        path = Path(store.directory) / f"batch={batch.number}"
        rows = store.spark.read.parquet(str(path)).drop("taken", "given_back", "unsettled")
        if batch is rejected:
            rows = rows.withColumn("why", fn.lit(LATER))
        rows.localCheckpoint().write.mode("overwrite").parquet(str(path))
    content = {"read": rejected.content.read, "later_schema": rejected.content.read}
    path_of_ledger = f"{store.directory}/ledger.json"
    ledger = json.loads(files.read_small(store.spark, path_of_ledger) or "")
    for batch in ledger["batches"]:
        del batch["schema"]
        if batch["number"] == rejected.number:
            batch["content"] = asdict(Content(**content))
    files.write_text(store.spark, path_of_ledger, json.dumps(ledger))


def test_the_kept_lines_have_the_columns_that_are_read(spark: SparkSession) -> None:
    none = spark.createDataFrame([], INPUT).select("*", fn.lit("").alias("broken"))
    thinned = thinning.thin(parsing.checked(none, file=fn.lit("")))
    expected = spark.createDataFrame([], KEPT_LINES).dtypes
    assert thinned.dtypes == expected


def of_links(told: Report, group: str, columns: tuple[str, ...]) -> dict[str, tuple[int | None, ...]]:
    """Of the one hour in which they spoke, which is also the day, by link."""
    by_period: Mapping[str, dict[str, tuple[int | None, ...]]] = {"hour": {}, "day": {}}
    for row in told.rows("account", group=group):
        by_period[row["period"]][row["link"]] = tuple(row[name] for name in columns)
    assert by_period["hour"] == by_period["day"]
    return by_period["hour"]


def accounts(kept: DataFrame) -> dict[str, tuple[int | None, ...]]:
    hour = {"hour_start": WITHIN.start, "hour_end": WITHIN.end, "day": START.date()}
    hours = literal_table(kept.sparkSession, [hour], "hour_start bigint, hour_end bigint, day date")
    with settings_for_rows(kept.sparkSession, rows=50) as keep:
        placed = keep(thinning.with_lives(kept, thinning.lives(kept, WITHIN)))
        rows = account(keep(cells(placed, WITHIN)), hours, WITHIN).where("period = 'hour'")
        return {row["link"]: tuple(row[name] for name in COLUMNS) for row in rows.collect()}
