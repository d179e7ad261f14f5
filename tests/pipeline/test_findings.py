"""What is asked of the finished tables, held against a small fleet whose course is known."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema
import pytest
from pyspark.sql import SparkSession

from agent.pipeline import job, options
from agent.pipeline.findings.gather import SLOTS, gather
from agent.pipeline.findings.model import Findings
from agent.pipeline.periods import micros
from agent.pipeline.schema import Bucket
from agent.pipeline.window import Bounds
from tests.acceptance.command import ROOT
from tests.pipeline.lines import BOUNDS, START, heartbeats, instant, line, write

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine

HOUR = 3600
DAY = 24 * HOUR
HOSTILE = "<script>alert(1)</script>" + "x" * 65_536
OUTPUT = "report"
UTC = ZoneInfo("UTC")


def fleet() -> Iterator[dict[str, Any]]:
    """Two days: on the first `late` fails for six hours, on the second three links of one upstream for one."""
    yield line(-1, "started", interval=600)
    yield from heartbeats(599, 2 * DAY + 600, every=600)
    yield line(0, "running", link="late", name=HOSTILE)
    yield line(2 * HOUR, "backoff", link="late", name=HOSTILE, error=HOSTILE)
    yield line(8 * HOUR, "running", link="late", name=HOSTILE)
    for number in range(3):
        told: dict[str, Any] = {"link": f"shared-{number}", "upstream_cluster": "far", "error": "refused"}
        yield line(0, "running", **told)
        yield line(DAY + 6 * HOUR + number, "backoff", backlog=7, reason="upstream_refused", **told)
        yield line(DAY + 7 * HOUR, "running", **told)
    for at, forwarded in ((1, 0), (DAY + 100, 400), (DAY + 200, 500)):
        transfer = {"le": BOUNDS, "count": [0, forwarded, forwarded, forwarded], "sum": 1.0}
        counted = {"forwarded": forwarded, "dropped": forwarded // 100, "backlog": 40}
        yield line(at, "running", link="busy", transfer=transfer, **counted)


@dataclass(frozen=True)
class Made:
    spark: SparkSession
    output: str
    first: dict[str, Any]
    second: dict[str, Any]

    def find(self) -> Findings:
        within = Bounds(micros(instant(DAY)), micros(instant(2 * DAY)))
        return gather(self.spark, self.output, within, UTC, {"read": 1})


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report of each day, into one directory."""
    directory = tmp_path_factory.mktemp("findings")
    write(directory / "export", *fleet(), "broken")

    def report(start: float, end: float) -> dict[str, Any]:
        asked = ["--input", str(directory / "export"), "--output", str(directory / OUTPUT)]
        return job.run(
            spark, options.parse([*asked, "--from", instant(start).isoformat(), "--to", instant(end).isoformat()])
        )

    return Made(spark, str(directory / OUTPUT), report(0, DAY), report(DAY, 2 * DAY))


def test_the_summary_is_of_its_window_and_knows_the_one_before(made: Made) -> None:
    for told in (made.first, made.second):
        jsonschema.validate(told, json.loads((ROOT / "docs/summary.schema.json").read_text()))
    assert made.first["previous"] is None
    assert (made.first["links"], made.first["incidents"], made.first["down_seconds"]) == (5, 1, 6 * HOUR)
    assert (made.second["incidents"], made.second["outages"], made.second["down_seconds"]) == (3, 1, 3 * HOUR - 3)
    assert made.second["previous"]["links"] == 5
    assert made.second["previous"]["window"]["start"].startswith(START.date().isoformat())
    assert json.loads((Path(made.output) / "summary.json").read_text()) == made.second
    assert made.second["waited_messages"] == 21
    assert (made.second["messages"], made.second["dropped"]) == (500, 5)


def test_what_the_page_shows(made: Made) -> None:
    found = made.find()
    assert (found.window.start, found.window.end) == (micros(instant(DAY)), micros(instant(2 * DAY)))
    [outage] = found.failures.outages
    assert (outage.scope, outage.name, outage.links, outage.error) == ("upstream", "far", 3, "refused")
    assert outage.span.start == micros(instant(DAY + 6 * HOUR))
    assert [link.which.link for link in found.worst[:3]] == ["shared-0", "shared-1", "shared-2"]
    [strip] = [strip for strip in found.strips if strip.which.link == "shared-0"]
    assert len(strip.slots) == SLOTS
    down = [slot.number for slot in strip.slots if slot.spent.of(Bucket.DOWN)]
    assert (down[0], down[-1]) == (60, 69)
    assert sum(slot.spent.of(*Bucket) for slot in strip.slots) == pytest.approx(DAY)
    edges_map, links_map = found.heat
    assert (edges_map.unit, len(edges_map.periods)) == ("hour", 24)
    cells = next(row.cells for row in links_map.rows if row.label == ("x.shared-0", "far"))
    assert [cells[period] for period in links_map.periods[5:8]] == [100.0, 0.0, 100.0]
    assert {(edge.source, edge.links, edge.messages) for edge in found.edges.busiest} == {
        ("there", 2, 500),
        ("far", 3, 0),
    }
    assert found.flow.transfer.p50 == pytest.approx(0.055)
    assert found.flow.lag.p50 == 40
    [objective] = found.promises.objectives
    assert (objective.links, objective.met) == (5, 2)


def test_long_and_hostile_names_are_cut_and_harmless(made: Made) -> None:
    text = (Path(made.output) / "report.html").read_text()
    # A date is replaced as a whole, and the later window begins at noon.
    assert "The tables hold 50 % of it." in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert len(text) < 500_000
    assert len(json.dumps(made.second)) < 50_000


def test_a_window_without_a_line_has_a_page(made: Made) -> None:
    within = Bounds(micros(instant(-9 * DAY)), micros(instant(-8 * DAY)))
    found = gather(made.spark, made.output, within, UTC, {})
    assert (found.fleet.links, found.worst) == (0, ())
