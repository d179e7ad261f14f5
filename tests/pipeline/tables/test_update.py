"""All tables of one small fleet, held against what it went through."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

import pytest

from agent.core.export_event import SCHEMA
from agent.pipeline.schema import FAILURE_FIELDS
from tests.pipeline.lines import BOUNDS, START, heartbeats, line
from tests.pipeline.reports import END, HOUR, Report

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

GROUP: Final = "g-fleet"
FACTS: dict[str, str | None] = dict.fromkeys(FAILURE_FIELDS) | {"kind": "refused", "side": "upstream", "user": "eve"}
FAILED: dict[str, Any] = {"reason": "failed", "error": "login refused", "failure": FACTS}


def told_by_hand() -> Iterator[dict[str, Any]]:
    """With clusters of their own: links that fail at about the same time and share an upstream fail together."""
    for one in fleet():
        of_link = {"upstream_cluster": "near"} if one.get("upstream_cluster") == "there" else {}
        yield one | {"group": GROUP, "cluster": "home"} | of_link


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


def test_days_have_the_hours_that_they_have(told: Report) -> None:
    days = told.rows("availability", group=GROUP, link="night", period="day")
    assert [(row["date"], row["up_seconds"], row["down_seconds"], row["incidents"]) for row in days] == [
        (date(2026, 3, 28), 11 * HOUR, 0, 0),
        (date(2026, 3, 29), 22 * HOUR, HOUR, 1),
        (date(2026, 3, 30), 14 * HOUR, 0, 0),
    ]
    assert [row["mttr_seconds"] for row in days] == [None, HOUR, None]
    hours = told.rows("availability", group=GROUP, link="night", period="hour")
    assert len(hours) == 48
    assert [row["down_seconds"] for row in hours[12:14]] == [1800, 1800]


def test_buckets_sum_to_the_window(told: Report) -> None:
    sums = told.table("intervals").groupBy("group", "link").sum("seconds").collect()
    assert {row[2] for row in sums} == {END}
    assert len(sums) == len({(one["group"], one["link"]) for one in told.lines if one["link"]})


def test_incidents(told: Report) -> None:
    found = {
        (row["link"], float((row["start"].replace(tzinfo=START.tzinfo) - START).total_seconds())): row
        for row in told.rows("incidents", group=GROUP)
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
    [down] = told.rows("intervals", group=GROUP, link="night", bucket="down")
    assert down["failure"].asDict() == FACTS
    shared = [row for (link, _), row in found.items() if link.startswith("shared")]
    assert {(row["outage_scope"], row["outage_name"], row["outage_links"]) for row in shared} == {
        ("upstream", "far", 3)
    }
    assert len({row["outage"] for row in shared}) == 1
    assert [row["outage"] for row in found.values() if row not in shared] == [None] * 5


def test_pauses_are_kept_apart(told: Report) -> None:
    first, *_ = told.rows("availability", group=GROUP, link="paused", period="hour")
    assert (first["paused_seconds"], first["availability_percent"], first["coverage_percent"]) == (600, 100, 100)
    assert first["availability_with_pauses_percent"] == pytest.approx(100 * 5 / 6)


def test_traffic(told: Report) -> None:
    rows = told.rows("traffic", group=GROUP, link="busy")
    assert [(row["messages"], row["bytes"], row["peak_backlog"]) for row in rows] == [
        (50, 500, 99),
        (10, 100, 1),
        (7, 70, 0),
    ]
    assert rows[0]["rate"] == pytest.approx(50 / 300)
    assert rows[0]["transfer_p50_seconds"] == pytest.approx(0.1 + 0.9 * 15 / 40)
    assert rows[2]["transfer_p99_seconds"] == 1.0


def test_objectives(told: Report) -> None:
    rows = told.table("slo").where(f"group = '{GROUP}'").collect()
    found = {(row["link"], row["objective"]): row for row in rows}
    night = found["night", "up"]
    assert (night["total"], night["bad"]) == (END, HOUR)
    assert night["consumed_percent"] == pytest.approx(100 * HOUR / (END * 0.001))
    assert found["open", "up"]["burn_5m"] == pytest.approx(100 / 300 / 0.001)
    busy = found["busy", "prompt"]
    assert (busy["total"], busy["bad"]) == (67, 40 + 0 + 7)


def test_edges(told: Report) -> None:
    first = told.table("edges").where("date = '2026-03-28' and cluster = 'home'").collect()
    assert {(row["upstream_cluster"], row["cluster"], row["links"], row["messages"]) for row in first} == {
        ("near", "home", 7, 67),
        ("far", "home", 3, 0),
    }
    assert {row["upstream_cluster"]: row["worst_link"] for row in first}["far"] == "shared-0"


def test_bad_lines_are_counted_and_kept(told: Report) -> None:
    assert told.summary["lines"] == {"read": len(told.lines) + len(BAD), "bad": 7, "later_schema": 1}
    assert sorted(row["why"] for row in told.rows("rejected")) == [
        "impossible time", "impossible time", "incomplete", "incomplete", "incomplete", "later schema", "malformed",
        "malformed",
    ]  # fmt: skip
    assert {BAD[0], BAD[1]} <= {row["line"] for row in told.rows("rejected")}
