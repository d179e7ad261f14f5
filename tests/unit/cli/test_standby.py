"""What `standby promote` says."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cli.standby import promotion_lines

FAILOVER: dict[str, Any] = {
    "how": "failover",
    "promoted": False,
    "since": None,
    "links": 2,
    "missing": 4,
    "not_here": 7,
    "repeats_at_most": 9,
    "bindings": [],
    "left_out": [],
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "when they were last seen: 4"),
        ({}, "they aren't here: at least 7"),
        ({"missing": None}, "unknown, as not all links show it"),
        ({"missing": None, "links": 0}, "unknown, as no agent answers that has links to the source"),
        ({"left_out": ["never"]}, "left out: vhost 'never'"),
        ({"repeats_at_most": None}, "may be repeated: unknown"),
    ],
)
def test_a_failover_before_it_is_done(change: dict[str, Any], says: str) -> None:
    assert says in "\n".join(promotion_lines(FAILOVER | change))


@pytest.mark.parametrize("left", [None, {}])
def test_a_switchover(left: dict[str, str] | None) -> None:
    found = {"how": "switchover", "moved": 3, "copies_taken_out": 5, "inexact": {}, "problems": []}
    found |= {} if left is None else {"left": left}
    said = "\n".join(promotion_lines(FAILOVER | found))
    expected = "to move from the source: 3; copies to take out: 5" if left is None else "moved from the source: 3"
    assert expected in said
