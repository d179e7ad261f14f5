"""What counters gained, by lines of a hand."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.pipeline.lines import heartbeats, line
from tests.pipeline.reports import Report

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

UNNAMED: Final = (
    line(0, "started", agent="unnamed", group=None, cluster=None),
    *heartbeats(10, 90, agent="unnamed"),
    line(5, "running", type="sample", agent="unnamed", forwarded=1000),
    line(100, "stopped", agent="unnamed"),
    line(105, "started", seq=1, agent="unnamed", group=None, cluster=None),
    line(106, "running", seq=2, agent="unnamed"),
    line(110, "running", seq=3, type="sample", agent="unnamed", forwarded=10),
    line(115, "heartbeat", seq=4, agent="unnamed"),
)
LOST: Final = (
    *heartbeats(0, 90),
    line(5, "running", type="sample", forwarded=1000),
    line(90, "running", type="sample", forwarded=1500),
    *(one | {"seq": number} for number, one in enumerate(heartbeats(150, 190))),
    line(150.5, "running", seq=3, type="sample", forwarded=10),
)


def told_by_hand() -> Iterator[dict[str, Any]]:
    yield from (one | {"group": "g-unnamed"} if one["group"] else one for one in UNNAMED)
    yield from (one | {"group": "g-lost"} for one in LOST)


def test_counts_begin_anew_with_an_agent_that_did_not_know_its_group_yet(told: Report) -> None:
    assert messages(told, "g-unnamed") == 1010


def test_counts_begin_anew_with_a_life_whose_start_is_lost(told: Report) -> None:
    """Numbers fall too, as they do where a clock is put back; but that happens within one life."""
    assert messages(told, "g-lost") == 510


def messages(told: Report, group: str) -> int:
    return sum(row["messages"] for row in told.rows("traffic", group=group))
