"""What `standby promote` says."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cli.standby import promotion_lines, switched_as_json
from agent.core.migration.objects import queue_key
from agent.migration.switch_record import SwitchedQueue, Switchover

FAILOVER: dict[str, Any] = {
    "how": "failover",
    "earlier": None,
    "agent_answers": True,
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
        ({"missing": None, "links": 0, "earlier": "failover"}, "unknown, as its links have ended before"),
        ({"earlier": "switchover"}, "a switchover was begun before"),
        ({"left_out": ["never"]}, "left out: vhost 'never'"),
        ({"repeats_at_most": None}, "may be repeated: unknown"),
    ],
)
def test_a_failover_before_it_is_done(change: dict[str, Any], says: str) -> None:
    assert says in "\n".join(promotion_lines(FAILOVER | change))


@pytest.mark.parametrize("left", [None, {}])
def test_a_switchover(left: dict[str, str] | None) -> None:
    found = {"how": "switchover", "moved": 3, "copies_taken_out": 5, "inexact": {}, "problems": []}
    found |= {} if left is None else {"left": left, "made": []}
    said = "\n".join(promotion_lines(FAILOVER | found))
    expected = "to move from the source: 3; copies to take out: 5" if left is None else "moved from the source: 3"
    assert expected in said


def test_bindings_are_made_only_where_nothing_stood_in_the_way() -> None:
    found = FAILOVER | {"bindings": ["a", "b"]}
    assert [line for line in promotion_lines(found) if "a" in line.split()] == ["to make: a"]
    stopped = "\n".join(promotion_lines(found | {"left": {}, "made": []}))
    assert "made: " not in stopped
    done = list(promotion_lines(found | {"left": {"b": "refused"}, "made": ["a"]}))
    assert "made: a" in done
    assert "left: b: refused" in done
    assert "made: b" not in done


def test_copies_of_a_switchover_that_stopped() -> None:
    """Those that were taken out, of queues that were counted and don't keep their copies."""
    queues = [
        SwitchedQueue(queue_key("v", "done"), old=5, kept=0),
        SwitchedQueue(queue_key("v", "midway"), old=7, kept=1, left=3, taking=2),
        SwitchedQueue(queue_key("v", "uncounted"), old=9),
        SwitchedQueue(queue_key("v", "keeps"), old=11, kept=2, keeps=True),
    ]
    assert switched_as_json(Switchover(queues), is_dry=False)["copies_taken_out"] == 7
    assert switched_as_json(Switchover(queues), is_dry=True)["copies_taken_out"] == 32
