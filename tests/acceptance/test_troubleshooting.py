"""docs/troubleshooting.md has an entry for all that an operator may meet, and none for what doesn't exist."""

from __future__ import annotations

import re

import pytest
import yaml

from agent.core import export_event
from agent.core.links.lifecycle import Status
from agent.core.rules import quarantine
from agent.core.status import advice
from tests.acceptance.command import ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text()
RULES = ROOT / "deploy/prometheus/rules"


def entries(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [
        found for cell in cells[2:] for found in re.findall(r"`([^`]+)`|\[(\w+)\]\(", cell) for found in found if found
    ]


def alerts() -> list[str]:
    groups = [group for path in RULES.glob("*.yml") for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize(
    ("heading", "exist"),
    [
        ("A link's status", [*Status]),
        ("Why it has that status", [*export_event.Reason]),
        ("Causes", [*advice.Trouble]),
        ("Messages in quarantine", [*quarantine.Reason]),
        ("Alerts", alerts()),
    ],
)
def test_each_has_one_entry(heading: str, exist: list[str]) -> None:
    assert sorted(entries(heading)) == sorted(map(str, exist))
