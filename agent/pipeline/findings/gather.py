"""Queries the finished tables for everything in the page and `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.pipeline.findings.account import account
from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.edges import edges
from agent.pipeline.findings.failures import failures
from agent.pipeline.findings.fleet import fleet, worst
from agent.pipeline.findings.flow import flow
from agent.pipeline.findings.groups import compared
from agent.pipeline.findings.heat import heat_of_edges, heat_of_links
from agent.pipeline.findings.model import Findings, Span
from agent.pipeline.findings.promises import promises
from agent.pipeline.findings.strips import strips
from agent.pipeline.spark.side_by_side import side_by_side

WORST: Final = 40
SLOTS: Final = 240
OUTAGES: Final = 20
INCIDENTS: Final = 100
EDGES: Final = 24
PROMISES: Final = 25
GROUPS: Final = 40


def gather(asked: Asked, lines: Mapping[str, int]) -> Findings:
    """A bounded number of values, however many links there are and however long the window is."""
    spark, zone, of = asked.spark, str(asked.zone), str(asked.chosen)
    window = Span(asked.within.start, asked.within.end)
    found, groups, links, pairs, failed, flowed, promised, books = side_by_side(
        spark,
        lambda: fleet(asked),
        lambda: compared(asked, most=GROUPS),
        lambda: worst(asked, most=WORST),
        lambda: edges(asked, most=EDGES),
        lambda: failures(asked, outages=OUTAGES, incidents=INCIDENTS),
        lambda: flow(asked),
        lambda: promises(asked, most=PROMISES),
        lambda: account(asked),
    )
    if not found.links:
        return Findings(window, zone, lines, found, of=of)
    drawn, *heat = side_by_side(
        spark,
        lambda: strips(asked, links, slots=SLOTS),
        lambda: heat_of_edges(asked, pairs.busiest),
        lambda: heat_of_links(asked, links),
    )
    return Findings(
        window, zone, lines, found, links, failed, SLOTS, drawn, tuple(heat), flowed, pairs, promised, of, groups, books
    )  # fmt: skip
