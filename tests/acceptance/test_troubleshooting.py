"""docs/troubleshooting.md has an entry for all that an operator may meet, and none for what doesn't exist."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
import typer
import yaml

from agent.check.findings import Topic
from agent.cli import (
    agent_commands,
    file_commands,
    main,
    migrate,
    migration_status,
    move,
    options,
    quarantine,
    signals,
    standby,
    status,
)
from agent.core import export_event
from agent.core.links.lifecycle import Status
from agent.core.rules.quarantine import QuarantineReason
from agent.core.status.failure_kinds import CAUSES
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
        ("Causes", [*CAUSES]),
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


def exit_statuses() -> dict[str, set[int]]:
    """Those that the page names, by command."""
    found: dict[str, set[int]] = defaultdict(set)
    number = 0
    for cells in rows("Exit statuses"):
        number = int(cells[0] or number)
        for command in names(cells[1]) or [cells[1]]:
            found[command].add(number)
    return found


def test_each_exit_status_has_an_entry() -> None:
    of_all = {options.OK, options.BAD_USE, options.BAD_CONFIGURATION, options.CANNOT_START}
    of_links = {options.UNKNOWN_LINK}
    assert exit_statuses() == {
        "all": of_all | {options.TROUBLE_WITH_BROKERS, options.INTERRUPTED},
        "status": {status.DEGRADED, status.DOWN, status.UNKNOWN},
        "links": {agent_commands.DOWNSTREAM_UNREAD},
        "alive": {agent_commands.NOT_ALIVE},
        "run": {signals.NOT_STOPPED, options.BAD_CONFIGURATION},
        "validate": {options.BAD_CONFIGURATION},
        "check": {options.TROUBLE_WITH_BROKERS},
        "topology": {options.TROUBLE_WITH_BROKERS},
        "plan": {file_commands.CHANGES},
        "migrate": {migration_status.NOT_SAFE, migrate.NOT_SAFE},
        "standby": {standby.NOT_IN_STEP, standby.LEFT, standby.NO_STANDBY},
        "quarantine": {quarantine.NOT_ALL, quarantine.NO_MESSAGE},
        "move": {move.SOME_LEFT, move.NONE_THERE},
        **dict.fromkeys(("describe", "events", "restart", "pause", "resume", "ack", "forget"), of_links),
    }


def test_the_exit_statuses_that_a_command_s_help_names_are_among_them() -> None:
    said, looked_at = exit_statuses(), 0
    for name, command in typer.main.get_command(main.app).commands.items():  # type: ignore[attr-defined]
        for each in (command, *getattr(command, "commands", {}).values()):
            numbers = {int(found) for found in re.findall(r"\b\d\b", (each.help or "").partition("Exit status: ")[2])}
            looked_at += bool(numbers)
            assert numbers - {options.OK} <= said[name], each.name
    assert looked_at > 5


def test_exit_statuses_are_of_commands_that_exist() -> None:
    exist = set(typer.main.get_command(main.app).commands)  # type: ignore[attr-defined]
    assert {name for cells in rows("Exit statuses") for name in names(cells[1])} <= exist
