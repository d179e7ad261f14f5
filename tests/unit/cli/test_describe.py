"""`describe`: one link in all its fields, as people read them."""

from __future__ import annotations

from typing import Any

from agent.cli.describe import lines
from tests.unit.cli.test_link_table import NOW, link


def described(**more: Any) -> dict[str, str]:
    found = link(1, reason="opened", backlog_last=None, backlog_last_at=None, lag_critical=None, **more)
    return {line.split()[0]: line.partition(" ")[2].strip() for line in lines(found, now=NOW)}


def test_numbers_have_commas() -> None:
    found = described(backlog=42_013, lag_seconds=1.5, behind_seconds=196.816)
    assert (found["forwarded"], found["backlog"]) == ("12,345,678", "42,013")
    assert (found["lag_seconds"], found["behind_seconds"]) == ("1.5 s", "3 min 16 s")


def test_the_advice_is_that_of_the_agent() -> None:
    assert described(advice="Run `this`.")["Do:"] == "Run `this`."
    assert "advice" not in described(advice="Run `this`.")
    assert "Do:" not in described(advice=None)
