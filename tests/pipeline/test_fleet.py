"""Many links for hours, with faults in the data: what comes out is what happened, to the microsecond."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline import options
from agent.pipeline.files import read_table
from agent.pipeline.job import run
from agent.pipeline.window import micros
from tests.pipeline.fleet import HOUR, SECOND, Account, Fleet, Span, Truth, Upstream
from tests.pipeline.lines import START, instant

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

LINES = int(os.environ.get("FEDERATION_AGENT_FLEET_LINES", "50000"))


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


@pytest.mark.thorough
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
    check_upstream(accounts, truth, summary["account"])


def check_upstream(accounts: DataFrame, truth: Truth, summary: dict[str, int]) -> None:
    """The start of an hour is what leads to its end: between two processes nothing is compared."""
    columns = ("entered", "acknowledged", "expired", "uncounted", "repeated", "backlog_start", "backlog_end")
    compared = accounts.where("entered is not null")
    by_hour = compared.where("period = 'hour'").select(
        "link", fn.unix_micros("start"), *columns, "unexplained_upstream"
    )
    found = {(row[0], (row[1] - micros(START)) // HOUR): Upstream(*row[2:]) for row in by_hour.collect()}
    assert found.keys() == truth.upstream.keys()
    for key, known in truth.upstream.items():
        growth = known.entered + known.uncounted - known.acknowledged - known.expired
        assert found[key] == replace(known, before=known.after - growth), key
    planted = sum(abs(one.unexplained) + one.uncounted for one in truth.upstream.values())
    links = {link for (link, _), one in truth.upstream.items() if one.unexplained or one.uncounted}
    assert planted
    assert summary["unexplained_upstream"] == planted
    assert summary["unexplained_upstream_links"] == len(links) < summary["upstream_links"]
    in_days = compared.where("period = 'day'").agg(*(fn.sum(name) for name in columns[:5])).collect()[0]
    assert [*in_days] == [sum(getattr(one, name) for one in truth.upstream.values()) for name in columns[:5]]
