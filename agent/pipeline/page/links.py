"""Links and the time that they spent in each status, as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from agent.pipeline.findings.model import LinkTime, Which
from agent.pipeline.page import words
from agent.pipeline.page.markup import Child, Markup
from agent.pipeline.page.tables import table
from agent.pipeline.page.words import NOTHING, count, duration, percent
from agent.pipeline.schema import Bucket

_HEADS = ("Link", "Availability", "Down", "Degraded", "Unknown", "Incidents")
_LAG = "Lag critical"


def links_table(label: str, links: Iterable[LinkTime], timelines: Collection[Which]) -> Markup:
    """Links with a timeline lead to it. For how long the lag was critical is a column if it is known of any of them."""
    shown = [*links]
    if all(link.lag_critical is None for link in shown):
        return table(label, _HEADS, (_row(link, timelines) for link in shown), class_="numbers")
    rows = ((*_row(link, timelines), _lag(link)) for link in shown)
    return table(label, (*_HEADS, _LAG), rows, class_="numbers")


def _lag(link: LinkTime) -> str:
    return NOTHING if link.lag_critical is None else duration(link.lag_critical)


def _row(link: LinkTime, timelines: Collection[Which]) -> tuple[Child, ...]:
    spent = link.spent
    times = (duration(spent.of(bucket)) for bucket in (Bucket.DOWN, Bucket.DEGRADED, Bucket.UNKNOWN))
    return words.linked(link.which, timelines), percent(spent.availability), *times, count(link.incidents)
