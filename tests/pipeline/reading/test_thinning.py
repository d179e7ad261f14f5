"""What is left of a day that is over, each case a group of its own: one run of Spark for all."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from agent.pipeline.reading import parsing, thinning
from agent.pipeline.reading.thinning import settled
from agent.pipeline.window import Bounds, micros
from tests.pipeline.lines import BOUNDS, START, heartbeats, line, write

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

END = 1800.0
Line = dict[str, Any]
Left = list[tuple[float, bool]]
"""When each line was written, and whether others were between it and the next."""


def samples(start: float, end: float, **told: Any) -> Iterator[Line]:
    for number in range(int((end - start) / 10) + 1):
        yield line(start + 10 * number + 1, told.pop("status", "running"), type="sample", **told)


def transfer(count: int) -> dict[str, Any]:
    return {"le": BOUNDS, "count": [count] * (len(BOUNDS) + 1), "sum": 1.0}


ALIVE = (*heartbeats(0, END),)
CASES: dict[str, tuple[tuple[Line, ...], Left]] = {
    "the same all the time": ((*ALIVE, *samples(0, END)), [(1, True), (1801, False)]),
    "another status": (
        (*ALIVE, *samples(0, 290), line(295, "backoff"), *samples(300, END)),
        [(1, False), (291, False), (295, False), (301, True), (1801, False)],
    ),
    "an agent that was away, and says nothing else of it": (
        (*heartbeats(0, 300), *heartbeats(600, END), *samples(0, END)),
        [(1, True), (321, False), (331, True), (591, False), (601, True), (1801, False)],
    ),
    "another endpoint": (
        (*ALIVE, *samples(0, 290), *samples(300, END, uri="amqp://second")),
        [(1, False), (291, False), (301, True), (1801, False)],
    ),
    "no more transfers": (
        (*ALIVE, *samples(0, 290, transfer=transfer(4)), *samples(300, END)),
        [(1, False), (291, False), (301, True), (1801, False)],
    ),
    "late": ((*ALIVE, *samples(0, 290), *samples(610, END)), [(1, False), (291, False), (611, True), (1801, False)]),
    "counted anew": (
        (*ALIVE, *samples(0, 290, forwarded=5), *samples(300, END, forwarded=3)),
        [(1, False), (291, False), (301, True), (1801, False)],
    ),
}


@pytest.fixture(scope="module")
def left(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str | None, list[Any]]]:
    """By case and link; of the link none is what agents say of themselves."""
    every = [one | {"group": case} for case, (lines, _) in CASES.items() for one in lines]
    file = write(tmp_path_factory.mktemp("settling"), *every)
    good = thinning.thin(parsing.read(spark, [str(file)])).drop("why", "line", "file", "schema").persist()
    found: dict[str, dict[str | None, list[Any]]] = {}
    within = Bounds(micros(START), micros(START) + int(END) * 1_000_000)
    for row in settled(good, within).orderBy("group", "ts").collect():
        found.setdefault(row["group"], {}).setdefault(row["link"], []).append(row)
    return found


@pytest.mark.parametrize("case", CASES)
def test_lines_on_links(case: str, left: dict[str, dict[str | None, list[Any]]]) -> None:
    told = [((row["ts"] - micros(START)) / 1_000_000, row["unbroken"]) for row in left[case]["l"]]
    assert told == CASES[case][1]


def test_what_agents_say_of_themselves(left: dict[str, dict[str | None, list[Any]]]) -> None:
    """The quiet is before the tenth minute, where five minutes end: only by its neighbours is it known."""
    rows = left["an agent that was away, and says nothing else of it"][None]
    told = [((row["ts"] - micros(START)) / 1_000_000, row["silent"], row["first"]) for row in rows]
    assert told == [(0, False, True), (300, False, False), (600, True, False), (END, False, False)]
    assert len(left["the same all the time"][None]) == 2
