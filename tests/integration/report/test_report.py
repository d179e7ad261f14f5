"""Real agents between real brokers, in one report: it shows what happened to each.

The four scenes happen at once, and one report is made of what they export: each report takes longer than they do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from agent.pipeline import files, options
from agent.pipeline.job import run
from tests.integration.federation.running import Agent
from tests.integration.report import account, faults, lag, upstream
from tests.lab.node import Node

pytestmark = pytest.mark.timeout(600)  # Spark runs, and brokers collect their numbers in their own time

Tables = Callable[[str], DataFrame]


def report(spark: SparkSession, output: Path, *agents: Agent) -> tuple[Tables, dict[str, Any]]:
    """Its tables by name, and its summary."""
    inputs = [f"--input={agent.directory / 'status'}" for agent in agents]
    summary = run(spark, options.parse([*inputs, "--output", str(output), "--merge-gap", "0.5"]))
    return lambda name: files.read_table(spark, name, output=str(output)), summary


def test_it_shows_what_happened(
    *,
    faulty: faults.Faults,
    accounted: account.Accounted,
    lagging: lag.Lagging,
    at_upstream: upstream.AtUpstream,
    origin: Node,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor() as at_once:
        of_faults = at_once.submit(faults.live, faulty)
        of_account = at_once.submit(account.live, accounted)
        of_lag = at_once.submit(lag.live, lagging)
        of_upstream = at_once.submit(upstream.live, at_upstream, origin)
    course, critical = of_faults.result(), of_lag.result()
    assert of_account.result() == of_upstream.result() is None

    output = tmp_path / "report"
    agents = faulty.agent, accounted.agent, lagging.agent, at_upstream.agent
    table, summary = report(spark, output, *agents)
    faults.check(faulty, course, table)
    account.check(accounted, table)
    lag.check(critical, summary)
    upstream.check(table, summary)
    assert (summary["links"], summary["lines"]["bad"], summary["account"]["unexplained"]) == (5, 0, 0)
    assert json.loads((output / "summary.json").read_text()) == summary
    assert "connection" in (output / "report.html").read_text()


@pytest.mark.parametrize("origin", ["sid"], indirect=True)
@pytest.mark.versions
def test_what_entered_the_newest_release_is_accounted_for(at_upstream: upstream.AtUpstream, origin: Node) -> None:
    """By the agent's own lines: what a report makes of them is the same for all releases."""
    upstream.live(at_upstream, origin)
    upstream.check_last(at_upstream.last())
