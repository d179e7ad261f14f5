"""What is asked of the finished tables, held against a small fleet whose course is known."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import SparkSession

from agent.pipeline import options
from agent.pipeline.findings.model import LinkIdentity, LinkTime, ReportFindings, TimeSpent
from agent.pipeline.findings.publish import SLOTS, gather, summary
from agent.pipeline.findings.report_tables import LONGEST, ReportTables
from agent.pipeline.findings.time_spent import objectives, timelines
from agent.pipeline.page.document import page
from agent.pipeline.page.formatting import TO
from agent.pipeline.schema import FAILURE_FIELDS, TABLES, Bucket
from agent.pipeline.spark import literal_table
from agent.pipeline.window import Bounds, micros
from tests.acceptance.command import ROOT
from tests.pipeline.lines import BOUNDS, heartbeats, instant, line, of_standby
from tests.pipeline.reports import END, HOUR, ZONE, Report

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

DAY = 24 * HOUR
THAT_DAY = 23 * HOUR  # the clocks are put forward
HOSTILE = "<script>alert(1)</script>" + "x" * 65_536
MIDNIGHT = 11 * HOUR  # in Berlin
ON_PAGE = ("g-repeats", "g-behind", "g-move", "g-a", "g-b")
"""The groups that the report's page, summary and sheets are about."""
OF_FLEET = options.LinkFilter(groups=("g-foun*",))


def fleet() -> Iterator[dict[str, Any]]:
    """For two days: `late` fails for six hours, and after midnight three links of one upstream for one."""
    yield line(-1, "started", interval=600)
    yield from heartbeats(599, 2 * DAY + 600, every=600)
    yield line(0, "running", link="late", name=HOSTILE)
    yield line(2 * HOUR, "backoff", link="late", name=HOSTILE, error=HOSTILE)
    yield line(8 * HOUR, "running", link="late", name=HOSTILE)
    for number in range(3):
        kind = ("exchange", "queue", "shovel")[number]
        told: dict[str, Any] = {"link": f"shared-{number}", "upstream_cluster": "far", "error": "refused", "kind": kind}
        facts = dict.fromkeys(FAILURE_FIELDS) | {"kind": "login", "user": HOSTILE}
        yield line(0, "running", **told)
        yield line(MIDNIGHT + 6 * HOUR + number, "backoff", backlog=7, reason="upstream_refused", failure=facts, **told)
        yield line(MIDNIGHT + 7 * HOUR, "running", **told)
    for at, forwarded in ((1, 0), (MIDNIGHT + 100, 400), (MIDNIGHT + 200, 500)):
        transfer = {"le": BOUNDS, "count": [0, forwarded, forwarded, forwarded], "sum": 1.0}
        counted: dict[str, Any] = {"forwarded": forwarded, "dropped": forwarded // 100, "backlog": 40}
        yield line(at, "running", link="busy", transfer=transfer, **counted)


def told_by_hand() -> Iterator[dict[str, Any]]:
    yield from (one | {"group": "g-found"} for one in fleet())
    yield from several()


def tables(told: Report, start: float, end: float, chosen: options.LinkFilter = OF_FLEET) -> ReportTables:
    return ReportTables(
        told.spark, str(told.output), Bounds(micros(instant(start)), micros(instant(end))), ZONE, chosen
    )


@pytest.fixture(scope="module")
def found(told: Report) -> ReportFindings:
    """Of the fleet in the day between the midnights, of which half is known before it."""
    counts = {"read": 1, "bad": 0, "later_schema": 0}
    return gather(tables(told, MIDNIGHT, MIDNIGHT + THAT_DAY), counts)


def test_the_summary_is_of_its_window_and_knows_the_one_before(told: Report, found: ReportFindings) -> None:
    of_day = summary(found)
    for each in (told.summary, of_day):
        jsonschema.validate(json.loads(json.dumps(each)), json.loads((ROOT / "docs/summary.schema.json").read_text()))
    assert json.loads((told.output / "summary.json").read_text()) == told.summary
    assert told.summary["previous"] is None
    incidents = told.rows("incidents", group="g-found")
    assert [row["down_seconds"] for row in incidents] == [6 * HOUR, HOUR, HOUR - 1, HOUR - 2]
    assert (of_day["links"], of_day["incidents"], of_day["outages"], of_day["down_seconds"]) == (5, 3, 1, 3 * HOUR - 3)
    assert (of_day["messages"], of_day["dropped"], of_day["waited_messages"]) == (500, 5, 21)
    before = of_day["previous"]
    assert (before["links"], before["down_seconds"]) == (5, 6 * HOUR)
    assert before["window"] == {"start": "2026-03-28T00:00:00.000000Z", "end": "2026-03-28T23:00:00.000000Z"}
    assert "The tables hold 48 % of it." in page(found)


def test_what_the_page_shows(told: Report, found: ReportFindings) -> None:
    [outage] = found.failures.outages
    assert (outage.scope, outage.name, outage.links, outage.error) == ("upstream", "far", 3, "refused")
    assert outage.failure == dict.fromkeys(FAILURE_FIELDS) | {"kind": "login", "user": HOSTILE[:LONGEST]}
    assert outage.span.start == micros(instant(MIDNIGHT + 6 * HOUR))
    assert [link.identity.link for link in found.worst[:3]] == ["shared-0", "shared-1", "shared-2"]
    assert [link.identity.kind for link in found.worst[:3]] == ["exchange", "queue", "shovel"]
    text = unescape(re.sub(r"<[^>]*>", "", page(found)))
    assert all(f"{kind} x.shared-{number} from far to here" in text for number, kind in ((1, "queue"), (2, "shovel")))
    [strip] = [strip for identity, strip in found.timelines.items() if identity.link == "shared-0"]
    assert len(strip) == SLOTS
    down = [slot for slot, spent in strip.items() if spent.of(Bucket.DOWN)]
    assert (down[0], down[-1]) == (62, 73)
    assert sum(spent.of(*Bucket) for spent in strip.values()) == pytest.approx(THAT_DAY)
    edges_map, links_map = found.heat_maps
    assert (edges_map.unit, len(edges_map.periods)) == ("hour", 23)
    cells = next(row.cells for row in links_map.rows if row.label == ("x.shared-0", "far", "here"))
    assert [cells[period] for period in links_map.periods[5:8]] == [100.0, 0.0, 100.0]
    assert {(edge.source, edge.links, edge.messages) for edge in found.edges.busiest} == {
        ("there", 2, 500),
        ("far", 3, 0),
    }
    assert found.traffic.transfer.p50 == pytest.approx(0.055)
    assert found.traffic.lag.p50 == 7
    assert found.traffic.steps[0].lag.p50 == 40
    assert found.objectives == (), "objectives are judged at the end of a run's own window"
    [objective] = (one for one in objectives(tables(told, 0, END)) if one.name == "up")
    assert (objective.links, objective.links_met) == (5, 1)
    assert objective.seen_days == 2
    # Of all links together 9 hours less 3 seconds, of 30 days and a thousandth of five links.
    assert objective.period_consumed_percent == pytest.approx(100 * (9 * HOUR - 3) / (5 * 30 * DAY * 0.001))
    assert [one["name"] for one in told.summary["objectives"]] == ["up"], "the page's links forward nothing"
    assert "2 of 30 days seen" in told.text


def several() -> Iterator[dict[str, Any]]:
    """Five groups: links that fail again and again; some that are behind; a move; a link that failed, and a quiet
    one."""
    yield from (one | {"group": "g-repeats"} for one in repeats())
    yield from (one | {"group": "g-behind"} for one in behind())
    yield from (one | {"group": "g-move", "cluster": "new"} for one in moving())
    for link in ("a", "b"):
        fields: dict[str, Any] = {"agent": link, "group": f"g-{link}"}
        yield line(0, "running", link=link, name=f"={link},1", **fields)
        yield from (one | fields for one in heartbeats(0, 4 * HOUR))
    for at, status in ((60, "backoff"), (120, "running")):
        yield line(at, status, link="a", group="g-a", agent="a", name="=a,1")
    for at in range(0, 4 * HOUR, 60):
        verdict = "promoted" if at >= 3 * HOUR else "not_in_step" if 600 <= at < 1200 or at == 1800 else "in_step"
        error = None if verdict == "in_step" else f"<b>why</b> at {at}"
        yield of_standby(at + 5, verdict, agent="a", group="g-a", upstream="=source", error=error)


def repeats() -> Iterator[dict[str, Any]]:
    yield line(0, "started")
    yield from heartbeats(10, 4 * HOUR)
    for link in ("weak", "one", "two"):
        yield line(0, "running", link=link)
    for at in (600, 7200, 12_000):
        yield line(at, "backoff", link="weak", reason="upstream_lost")
        yield line(at + 300, "running", link="weak")
    other = dict.fromkeys(FAILURE_FIELDS) | {"kind": "heartbeats missed"}
    yield line(13_000, "backoff", link="weak", reason="upstream_lost", failure=other)
    yield line(13_060, "running", link="weak")
    for link in ("one", "two"):
        for at in (HOUR, 3 * HOUR):
            yield line(at, "blocked", link=link, reason="upstream_blocked")
            yield line(at + 1080, "running", link=link)


def behind() -> Iterator[dict[str, Any]]:
    """`far` is behind on two links while they are up; what one says while it is paused doesn't count. `no` has no
    limit, `old` an agent that doesn't tell."""

    def lines_of(link: str, *lags: tuple[float, bool | None], status: str = "running", **more: Any) -> Iterator[Any]:
        for at, lag in lags:
            yield line(at, status, link=link, schema=3, lag_is_critical=lag, **more)

    far = {"upstream_cluster": "far"}
    yield line(0, "started")
    yield from heartbeats(10, 3 * HOUR)
    yield from lines_of("up", (0, False), (HOUR + 600, True), (HOUR + 1800, False), **far)
    yield from lines_of("more", (0, False), (1800, True), **far)
    yield from lines_of("more", (5400, True), status="paused", **far)
    yield from lines_of("fine", (0, False))
    yield from lines_of("no", (0, None))
    yield line(0, "running", link="old")


def moving() -> Iterator[dict[str, Any]]:
    """One queue has moved, of the other 7 wait, and 1 is on its way; the source's name is known only later."""

    def lines_of(
        link: str, queue: dict[str, Any], *counts: tuple[float, int, int, int, int, int]
    ) -> Iterator[dict[str, Any]]:
        for at, taken, forwarded, back, unsettled, backlog in counts:
            numbers: dict[str, Any] = {"taken": taken, "forwarded": forwarded, "given_back": back, "schema": 2}
            ends: dict[str, Any] = {"moves_from": "<b>old" if at else None, "upstream_cluster": None}
            found = line(at, "running", link=link, agent="mover", backlog=backlog, **queue, **numbers, **ends)
            yield found | {"unsettled": unsettled}

    yield line(-1, "started", agent="mover")
    yield from heartbeats(10, HOUR, agent="mover")
    yield from lines_of(
        "one",
        {"kind": "queue", "upstream_name": "orders"},
        (0, 0, 0, 0, 0, 150),
        (620, 100, 100, 0, 0, 50),
        (1300, 150, 150, 0, 0, 0),
    )
    stop: dict[str, Any] = {"kind": "queue", "upstream_name": "orders", "moves_from": "<b>old", "schema": 2}
    stop |= {"taken": 150, "forwarded": 150, "unsettled": 0}
    yield line(1310, "stopping", link="one", agent="mover", **stop)
    yield from lines_of(
        "two",
        {"kind": "shovel", "name": "migrate invoices", "upstream_name": "invoices"},
        (0, 0, 0, 0, 0, 17),
        (900, 12, 10, 1, 1, 7),
    )


def test_repeats_and_times_degraded_are_told_once(told: Report) -> None:
    blocked_first = "2 links to upstream there blocked 2 times, for 18 min at most and 1.2 link-hours in all"
    down = "x.weak from there to here down 3 times, for 5 min at most and 15 min in all, upstream lost"
    assert 0 < told.text.index(blocked_first) < told.text.index(down)
    assert "x.weak from there to here down for 1 min, upstream lost" in told.text, "of another kind"


def test_links_that_were_too_far_behind_are_told(told: Report) -> None:
    assert told.summary["lag_critical"] == {"seconds": 1200 + 3600, "links": 2, "known_links": 3}
    text = told.text
    assert "2 of 3 links with lag-critical were further behind, 1.3 link-hours in all." in text
    assert (
        f"28 Mar 13:00{TO}15:00 CET: 2 links to upstream far further behind than lag-critical for 1.3 link-hours"
        in text
    )
    worst = text[text.index("Links with the least availability") :]
    assert 0 < worst.index("x.more") < worst.index("x.up") < worst.index("Timelines")
    rows = [row for row in told.sheet("availability") if row["date"] == "2026-03-28"]
    found = {row["link"]: row["lag_critical_seconds"] for row in rows if row["group"] == "g-behind"}
    assert found == {"up": "1200.000000", "more": "3600.000000", "fine": "0.000000", "no": "", "old": ""}


def test_a_standby_has_a_section_and_is_no_link(told: Report, found: ReportFindings) -> None:
    [row] = told.summary["standbys"]
    schema = json.loads((ROOT / "docs/summary.schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(told.summary)), schema)
    assert (row["group"], row["upstream"], row["promotions"]) == ("g-a", "=source", 1)
    assert (row["not_in_step_seconds"], row["promoted_seconds"]) == (660, HOUR - 5)
    assert row["in_step_percent"] == pytest.approx(100 * (1 - 660 / (3 * HOUR)))
    longest = {"start": "2026-03-28T12:10:05.000000Z", "end": "2026-03-28T12:20:05.000000Z"}
    assert row["longest_not_in_step"] == longest | {"error": "<b>why</b> at 600"}
    text = told.text[told.text.rindex("Standby") :]
    assert re.search("10 min, 28 Mar 13:10.{1,3}13:20.*: <b>why</b> at 600", text)
    assert "28 Mar 2026 16:00 CET" in text
    assert 'id="standby"' not in page(found), "it is of another group"


def test_a_move_has_a_section(told: Report, found: ReportFindings) -> None:
    [row] = told.summary["moves"]
    assert row == {
        "group": "g-move",
        "source": "<b>old",
        "target": "new",
        "queues": 2,
        "moved": 160,
        "when": {"start": "2026-03-28T12:10:00.000000Z", "end": "2026-03-28T12:25:00.000000Z"},
        "left": 7,
        "left_queues": 1,
        "unknown_queues": 0,
        "looked_until": "2026-03-28T12:25:00.000000Z",
        "most_left": [{"vhost": "/", "queue": "invoices", "left": 7}],
        "taken": 162,
        "dropped": 0,
        "quarantined": 0,
        "given_back": 1,
        "in_doubt": 1,
        "unexplained": 0,
        "not_accounted_queues": 0,
    }
    text = told.text[told.text.rindex("Move") :]
    assert f"<b>old to new216028 Mar 13:10{TO}13:25" in text
    assert "7 left in 1 queue, invoices in /: 7, 28 Mar 2026 13:25 CET162 taken, 1 given back, 1 in doubt" in text
    assert 'id="moves"' not in page(found), "it is of another group"


def test_sheets_are_the_tables_rows_and_no_formulas(told: Report) -> None:
    rows = [row for row in told.sheet("availability") if row["date"] == "2026-03-28"]
    days = [row for row in rows if row["group"] in {"g-a", "g-b"}]
    [incident] = [row for row in told.sheet("incidents") if row["group"] == "g-a"]
    assert [(row["group"], row["name"], row["down_seconds"]) for row in days] == [
        ("g-a", "'=a,1", "60.000000"), ("g-b", "'=b,1", "0.000000"),
    ]  # fmt: skip
    assert (incident["start"], incident["seconds"]) == ("2026-03-28T12:01:00.000000Z", "60.000000")
    groups = told.text[told.text.index("Groups of agents") :]
    assert 0 < groups.index("g-a") < groups.index("g-b"), "the least available first"
    one, other = groups[groups.index("g-a1 link,") :].split("g-b1 link,")
    assert "Links of the group with the least availability" in one
    assert "=a,1" in one
    assert re.match(r" available 100\s% of the time, 0 incidents\.All links of this group were fully available", other)


def test_long_and_hostile_names_are_cut_and_harmless(found: ReportFindings) -> None:
    text = page(found)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert len(text) < 500_000
    assert len(json.dumps(summary(found))) < 50_000


def test_a_page_may_be_about_some_links(told: Report, found: ReportFindings) -> None:
    assert (told.summary["links"], found.fleet.links) == (12, 5)
    assert "Only groups g-foun*." in page(found)
    assert "Only " not in page(replace(found, link_filter=""))
    some = options.LinkFilter(upstreams=("f*",), links=("x?shared-1", "//x.shared-2"))
    rows = tables(told, MIDNIGHT, MIDNIGHT + THAT_DAY, some).incidents().collect()
    assert [row["link"] for row in rows] == ["shared-2"]
    assert "Only links x?shared-1, //x.shared-2; upstreams f*." in page(replace(found, link_filter=str(some)))


def test_what_an_earlier_report_has_told_of_the_same_time_is_not_seen(spark: SparkSession, tmp_path: Path) -> None:
    def row(start: int, end: int, bucket: Bucket) -> dict[str, Any]:
        began, ended = instant(start), instant(end)
        told = {"group": "g", "link": "l", "bucket": bucket, "start": began.isoformat(), "end": ended.isoformat()}
        return told | {"date": began.date()}

    earlier, own = row(-DAY, DAY, Bucket.UP), [row(0, 1800, Bucket.UP), row(1800, HOUR, Bucket.DOWN)]
    table = literal_table(spark, [earlier, *own], TABLES["intervals"])
    table.write.partitionBy("date").parquet(f"{tmp_path}/intervals")
    within = Bounds(micros(instant(0)), micros(instant(HOUR)))
    links = [LinkTime(LinkIdentity("g", "l"), TimeSpent(), 0)]
    [strip] = timelines(ReportTables(spark, str(tmp_path), within, ZONE), links, slots=1).values()
    assert [spent.seconds for spent in strip.values()] == [{Bucket.UP: 1800, Bucket.DOWN: 1800}]
