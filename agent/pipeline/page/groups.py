"""Groups of agents: beside each other, and a section for each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent.pipeline.findings.model import GroupTime, Which
from agent.pipeline.page import words
from agent.pipeline.page.links import links_table
from agent.pipeline.page.markup import Child, Markup, element
from agent.pipeline.page.tables import nothing, section, table
from agent.pipeline.page.words import count, percent, plural
from agent.pipeline.schema import Bucket

_HEADS = ("Group", "Availability", "Links", "Down", "Degraded", "Incidents", "Messages", "Worst link")
_NOTE = "The least available group first; down and degraded are link-hours. --group makes a page of one of them."


def groups(found: Sequence[GroupTime], timelines: Collection[Which]) -> Markup:
    rows = (_row(group, number) for number, group in enumerate(found, 1))
    beside = table("Groups of agents", _HEADS, rows, class_="numbers")
    each = (_own(group, number, timelines) for number, group in enumerate(found, 1))
    return section("groups", "Groups", beside, *each, note=_NOTE)


def _row(group: GroupTime, number: int) -> tuple[Child, ...]:
    times = (words.link_hours(group.spent.of(bucket)) for bucket in (Bucket.DOWN, Bucket.DEGRADED))
    worst = words.name(group.worst[0].which.name, 30) if group.worst else words.NOTHING
    counts = (count(group.incidents), count(group.messages))
    name = element("a", words.name(group.name), href=f"#{_key(number)}")
    return name, percent(group.spent.availability), count(group.links), *times, *counts, worst


def _own(group: GroupTime, number: int, timelines: Collection[Which]) -> Markup:
    """What is to be looked at in one group."""
    key = _key(number)
    available = f"available {percent(group.spent.availability)} of the time"
    said = f"{plural(group.links, 'link')}, {available}, {plural(group.incidents, 'incident')}."
    links = (
        links_table("Links of the group with the least availability", group.worst, timelines)
        if group.worst
        else nothing("All links of this group were fully available.")
    )
    title = element("h3", words.name(group.name), id=f"{key}-title")
    return element("section", title, element("p", said), links, id=key, aria_labelledby=f"{key}-title")


def _key(number: int) -> str:
    """Names of groups may be anything."""
    return f"group-{number}"
