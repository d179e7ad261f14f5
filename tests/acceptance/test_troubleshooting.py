"""docs/troubleshooting.md has an entry for all that an operator may meet, and none for what doesn't exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
import yaml

from agent.check.findings import Topic
from agent.cli import agent_commands, deadline, main, options, quarantine, status
from agent.core import export_event
from agent.core.links.lifecycle import Status
from agent.core.rules.quarantine import QuarantineReason
from agent.core.status import advice
from tests.acceptance.command import ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text()
RULES = ROOT / "deploy/prometheus/rules"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


def names(cell: str) -> list[str]:
    """What is set as code, or leads to a section of that name."""
    return [found for pair in re.findall(r"`([^`]+)`|\[(\w+)\]\(", cell) for found in pair if found]


def alerts() -> list[dict[str, Any]]:
    groups = [group for path in RULES.glob("*.yml") for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize(
    ("heading", "exist"),
    [
        ("A link's status", [*Status]),
        ("Why it has that status", [*export_event.Reason]),
        ("Causes", [*advice.CAUSES]),
        ("Messages in quarantine", [*QuarantineReason]),
        ("Alerts", [alert["alert"] for alert in alerts()]),
        ("What `check` finds", [*Topic]),
    ],
)
def test_each_has_one_entry(heading: str, exist: list[str]) -> None:
    assert sorted(name for cells in rows(heading) for name in names(cells[0])) == sorted(map(str, exist))


def test_alerts_are_as_severe_as_the_page_says() -> None:
    said = {names(cells[0])[0]: cells[1] for cells in rows("Alerts")}
    assert said == {alert["alert"]: alert["labels"]["severity"] for alert in alerts()}


def test_each_exit_status_has_an_entry() -> None:
    of_all = {options.OK, options.BAD_USE, options.BAD_CONFIGURATION, options.CANNOT_START, options.INTERRUPTED}
    of_brokers = {options.TROUBLE_WITH_BROKERS, agent_commands.DOWNSTREAM_UNREAD, deadline.NOT_STOPPED}
    of_links = {options.UNKNOWN_LINK}
    of_status = {status.FINE, status.DEGRADED, status.DOWN}
    of_quarantine = {quarantine.NOT_ALL, quarantine.NO_MESSAGE}
    said = {int(cells[0]) for cells in rows("Exit statuses") if cells[0]}
    assert said == of_all | of_brokers | of_links | of_status | of_quarantine


def test_exit_statuses_are_of_commands_that_exist() -> None:
    exist = set(typer.main.get_command(main.app).commands)  # type: ignore[attr-defined]
    assert {name for cells in rows("Exit statuses") for name in names(cells[1])} <= exist
