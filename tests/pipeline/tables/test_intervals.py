"""Timelines by hand, each a link of a group of its own, and what has to come of them: they end with the window."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from agent.pipeline.window import micros
from tests.pipeline import reports
from tests.pipeline.lines import START, heartbeats, later, line
from tests.pipeline.reports import Report

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

END = 1200.0
BEGIN: Final = reports.END - END
"""Of the cases, since that of the window."""
Span = tuple[float, float, str]


@dataclass(frozen=True)
class Case:
    lines: tuple[dict[str, Any], ...]
    spans: list[Span]


def alive(*, agent: str = "a") -> Iterator[dict[str, Any]]:
    yield line(0, "started", agent=agent)
    yield from heartbeats(10, END, agent=agent)


def samples(start: float, end: float, status: str = "running", *, agent: str = "a") -> Iterator[dict[str, Any]]:
    for number in range(int((end - start) / 10) + 1):
        yield line(start + 10 * number, status, type="sample", agent=agent)


def again(*lines: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those of a new run, which numbers them anew."""
    first = min(one["seq"] for one in lines)
    return (one | {"seq": one["seq"] - first} for one in lines)


OUTAGE = (line(0, "running"), line(100.5, "backoff"), line(160.25, "starting"), line(160.75, "running"))
OUTAGE_SPANS: list[Span] = [
    (0, 100.5, "running"),
    (100.5, 160.25, "backoff"),
    (160.25, 160.75, "starting"),
    (160.75, END, "running"),
]

CASES = {
    "a quiet link of a living agent": Case((*alive(), line(0, "running")), [(0, END, "running")]),
    "transitions": Case((*alive(), *OUTAGE), OUTAGE_SPANS),
    "out of order and twice": Case((*OUTAGE[::-1], *alive(), *OUTAGE, *alive()), OUTAGE_SPANS),
    "transitions and samples": Case((*alive(), *OUTAGE, *samples(5, 95), *samples(165, END - 5)), OUTAGE_SPANS),
    "a lost transition shows in the next sample": Case(
        (*alive(), *samples(0, 90), *samples(100, 200, "backoff"), *samples(210, END)),
        [(0, 100, "running"), (100, 210, "backoff"), (210, END, "running")],
    ),
    "every status": Case(
        (
            *alive(),
            *(
                line(at, status)
                for at, status in enumerate(
                    [
                        *("running", "blocked", "stalled", "starting", "backoff", "invalid"),
                        *("paused", "terminated", "removing", "standby", "stopping"),
                    ]
                )
            ),
        ),
        [
            (0, 1, "running"),
            (1, 2, "blocked"),
            (2, 3, "stalled"),
            (3, 4, "starting"),
            (4, 5, "backoff"),
            (5, 6, "invalid"),
            (6, 7, "paused"),
            (7, 8, "terminated"),
            (8, 9, "removing"),
            (9, 10, "standby"),
            (10, END, "stopping"),
        ],
    ),
    "a dead agent": Case(
        (line(0, "started"), *heartbeats(10, 400), line(0, "running")),
        [(0, 400, "running"), (400, END, "unknown")],
    ),
    "a dead agent whose link had the last word": Case(
        (line(0, "started"), *heartbeats(10, 400), line(0, "running"), line(404, "backoff")),
        [(0, 404, "running"), (404, END, "unknown")],
    ),
    "heartbeats late but not missing": Case(
        (line(0, "started"), *heartbeats(10, 400), *heartbeats(430, END), line(0, "running")), [(0, END, "running")]
    ),
    "three heartbeats missed": Case(
        (line(0, "started"), *heartbeats(10, 400), *heartbeats(431, END), line(0, "running"), line(500, "running")),
        [(0, 400, "running"), (400, 500, "unknown"), (500, END, "running")],
    ),
    "silence that proves nothing yet": Case(
        (line(0, "started"), *heartbeats(10, END - 20), line(0, "running")), [(0, END, "running")]
    ),
    "stopped": Case(
        (line(0, "started"), *heartbeats(10, 400), line(0, "running"), line(405, "stopping"), line(405.5, "stopped")),
        [(0, 405, "running"), (405, 405.5, "stopping"), (405.5, END, "unknown")],
    ),
    "killed and restarted at once": Case(
        (
            line(0, "started"),
            *heartbeats(10, 400),
            line(0, "running"),
            line(408, "started"),
            *heartbeats(418, END),
            line(408.5, "starting", seq=2),
            line(409, "running", seq=3),
        ),
        [(0, 400, "running"), (400, 408.5, "unknown"), (408.5, 409, "starting"), (409, END, "running")],
    ),
    "killed and restarted before it knew its group": Case(
        (
            line(0, "started", agent="new", group=None, cluster=None),
            *heartbeats(10, 400, agent="new"),
            line(0.5, "running", agent="new"),
            *samples(5, 395, agent="new"),
            *again(
                line(408, "started", agent="new", group=None, cluster=None),
                *heartbeats(418, END, agent="new"),
                line(409, "running", agent="new"),
                *samples(415, END, agent="new"),
            ),
        ),
        [(0, 0.5, "unknown"), (0.5, 400, "running"), (400, 409, "unknown"), (409, END, "running")],
    ),
    "two replicas": Case((*alive(), *alive(agent="b"), *OUTAGE, line(0, "standby", agent="b")), OUTAGE_SPANS),
    "a takeover": Case(
        (
            line(0, "started"),
            *heartbeats(10, 400),
            line(0, "running"),
            *alive(agent="b"),
            line(0, "standby", agent="b"),
            line(404, "starting", agent="b"),
            line(405, "running", agent="b"),
        ),
        [(0, 400, "running"), (400, 404, "standby"), (404, 405, "starting"), (405, END, "running")],
    ),
    "clocks apart: both say running for a while": Case(
        (
            *alive(),
            line(0, "running"),
            line(410, "standby"),
            *alive(agent="b"),
            line(0, "standby", agent="b"),
            line(400, "running", agent="b"),
        ),
        [(0, END, "running")],
    ),
    "clocks apart: for a while neither says running": Case(
        (
            *alive(),
            line(0, "running"),
            line(400, "standby"),
            *alive(agent="b"),
            line(0, "standby", agent="b"),
            line(410, "running", agent="b"),
        ),
        [(0, 400, "running"), (400, 410, "standby"), (410, END, "running")],
    ),
    "a clock put back": Case(
        (
            *alive(),
            line(0, "running", seq=1),
            line(500, "backoff", seq=2),
            line(450, "running", seq=3),
            line(510, "running", seq=4),
        ),
        [(0, 500, "running"), (500, 510, "backoff"), (510, END, "running")],
    ),
    "appears and vanishes": Case(
        (*alive(), line(200, "starting"), line(201, "running"), line(800, "stopping")),
        [(0, 200, "unknown"), (200, 201, "starting"), (201, 800, "running"), (800, END, "stopping")],
    ),
    "vanishes without a word": Case((*alive(), *samples(0, 500)), [(0, 500, "running"), (500, END, "unknown")]),
    "an agent that tells nothing of itself": Case(tuple(samples(0, 500)), [(0, 500, "running"), (500, END, "unknown")]),
    "cut by the window": Case(
        (
            line(-BEGIN - 50, "started", interval=600),
            *heartbeats(-BEGIN + 500, END + 500, every=600),
            line(-BEGIN - 50, "backoff"),
            line(-BEGIN + 50, "running"),
            line(END - 50, "backoff"),
            line(END + 50, "running"),
        ),
        [(-BEGIN, -BEGIN + 50, "backoff"), (-BEGIN + 50, END - 50, "running"), (END - 50, END, "backoff")],
    ),
}


def told_by_hand() -> Iterator[dict[str, Any]]:
    """With upstreams of their own, as links fail together that fail at about the same time and share one. A line that
    knows no group is left so."""
    for case, made in CASES.items():
        for one in made.lines:
            of_link = {"upstream_cluster": case} if one["link"] else {}
            yield later(one, BEGIN) | of_link | ({"group": case} if one["group"] else {})


@pytest.fixture(scope="module")
def found(told: Report) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = {case: [] for case in CASES}
    begin = micros(START) + round(BEGIN * 1e6)
    columns = "group", "status", "unix_micros(start) as since", "unix_micros(end) as until"
    for row in told.table("intervals").selectExpr(*columns).orderBy("group", "since").collect():
        if row["group"] in CASES:
            spans[row["group"]].append(((row["since"] - begin) / 1e6, (row["until"] - begin) / 1e6, row["status"]))
    return spans


@pytest.mark.parametrize("case", CASES)
def test_a_timeline(found: dict[str, list[Span]], case: str) -> None:
    """Before a link's first line nothing is known of it."""
    (begin, until, status), *others = CASES[case].spans
    before: list[Span] = []
    if status == "unknown":
        begin = -BEGIN
    elif begin > -BEGIN:
        before = [(-BEGIN, begin, "unknown")]
    assert found[case] == [*before, (begin, until, status), *others]
