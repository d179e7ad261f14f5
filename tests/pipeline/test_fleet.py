"""Many links for hours, with faults in the data: what comes out is what happened, to the microsecond."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from agent.pipeline import options
from agent.pipeline.run import run
from agent.pipeline.spark.files import read_table
from agent.pipeline.tables.periods import micros
from tests.pipeline.fleet import HOUR, SECOND, Account, Fleet, Span
from tests.pipeline.lines import START, instant

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine

LINES = int(os.environ.get("FEDERATION_AGENT_FLEET_LINES", "200000"))


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """So many lines are worth compiling for."""
    usual = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: str(spark.conf.get(name)) for name in usual}
    for name, value in usual.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_a_fleet_is_told_as_it_was(compiling: SparkSession, tmp_path: Path) -> None:
    spark = compiling
    fleet = Fleet(seed=7, agents=4, each=25, steps=LINES // 100)
    truth = fleet.write(tmp_path / "export")
    asked = ["--input", str(tmp_path / "export"), "--output", str(tmp_path / "report")]
    asked += ["--from", START.isoformat(), "--to", instant(fleet.end / SECOND).isoformat()]
    summary = run(spark, options.parse(asked))
    assert summary["lines"] == {"read": truth.lines, "bad": truth.bad, "later_schema": 0}

    spans: dict[str, list[Span]] = {}
    intervals = read_table(spark, "intervals", output=str(tmp_path / "report"))
    told = intervals.select("link", fn.unix_micros("start"), fn.unix_micros("end"), "status").orderBy("link", "start")
    for link, start, end, status in told.collect():
        spans.setdefault(link, []).append((start - micros(START), end - micros(START), status))
    assert spans == truth.spans
    critical = {link: None if spent is None else spent / SECOND for link, spent in truth.critical.items()}
    for period in ("day", "hour"):
        table = read_table(spark, "availability", output=str(tmp_path / "report")).where(f"period = '{period}'")
        found = table.groupBy("link").agg(fn.sum("lag_critical_seconds")).collect()
        assert {link: None if spent is None else float(spent) for link, spent in found} == critical
    assert len({spent is None for spent in critical.values()}) == 2
    assert all(spent is None or 0 < spent < fleet.end / SECOND for spent in critical.values())

    passed = read_table(spark, "traffic", output=str(tmp_path / "report")).groupBy("link").sum("messages").collect()
    assert {row[0]: row[1] for row in passed} == truth.messages

    accounts = read_table(spark, "account", output=str(tmp_path / "report"))
    columns = ("taken", "forwarded", "given_back", "in_flight_start", "in_flight_end", "unexplained")
    by_hour = accounts.where("period = 'hour'").select("link", fn.unix_micros("start"), *columns).collect()
    assert {(row[0], (row[1] - micros(START)) // HOUR): Account(*row[2:]) for row in by_hour} == truth.account
    lost = sum(one.lost for one in truth.account.values())
    assert lost
    assert accounts.where("period = 'day'").agg(fn.sum("unexplained")).collect()[0][0] == lost
    with_loss = {link for (link, _), one in truth.account.items() if one.lost}
    assert summary["account"]["unexplained"] == lost
    assert summary["account"]["unexplained_links"] == len(with_loss)
