"""Queues that are never trimmed, and how long their source waits for acknowledgements."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from agent.core.standby.definitions import QueueDefinition, StandingDoubt, consumer_timeout, standing_doubt

PLAIN: Final = QueueDefinition("classic", {}, (3, 10))
QUORUM: Final = QueueDefinition("quorum", {}, (4, 3))


@pytest.mark.parametrize(
    ("source", "copy", "doubt"),
    [
        (PLAIN, PLAIN, None),
        (replace(PLAIN, kind="stream"), replace(PLAIN, kind="stream"), StandingDoubt.STREAM),
        (PLAIN, replace(PLAIN, settings={"max-priority": 5}), StandingDoubt.PRIORITIES),
        (replace(PLAIN, settings={"max-priority": 5}), PLAIN, None),
        (QUORUM, QUORUM, StandingDoubt.QUORUM_PRIORITIES),
        (QUORUM, replace(QUORUM, release=(3, 13)), None),
        (PLAIN, replace(PLAIN, settings={"max-length": 5}), StandingDoubt.LIMITED),
        (PLAIN, replace(PLAIN, settings={"max-length-bytes": 5}), StandingDoubt.LIMITED),
        (PLAIN, replace(PLAIN, consumers=1), StandingDoubt.CONSUMED),
        (replace(PLAIN, consumers=1), PLAIN, None),
        (replace(QUORUM, settings={"delayed-retry-type": "all"}), PLAIN, StandingDoubt.RETURNED),
        (replace(PLAIN, dead_letters=True), PLAIN, StandingDoubt.DEAD_LETTERED),
        (PLAIN, replace(PLAIN, dead_letters=True), StandingDoubt.DEAD_LETTERED_HERE),
    ],
)
def test_doubts(source: QueueDefinition, copy: QueueDefinition, doubt: StandingDoubt | None) -> None:
    assert standing_doubt(source, copy) is doubt


def test_priorities_of_quorum_queues_are_no_doubt_where_they_are_seen() -> None:
    assert standing_doubt(QUORUM, QUORUM, sees_priorities=True) is None
    declared = replace(QUORUM, settings={"max-priority": 5})
    assert standing_doubt(declared, declared, sees_priorities=True) is StandingDoubt.PRIORITIES


@pytest.mark.parametrize(
    ("queue", "after", "timeout"),
    [
        (PLAIN, 300.0, 1800.0),
        (PLAIN, 7200.0, 7200.0),
        (QUORUM, 300.0, 1800.0),
        (replace(QUORUM, settings={"consumer-timeout": 60_000}), 300.0, 60.0),
        (replace(QUORUM, settings={"consumer-timeout": 0}), 300.0, None),
        (replace(QUORUM, kind="classic"), 7200.0, None),
    ],
)
def test_the_timeout_of_consumers(queue: QueueDefinition, after: float, timeout: float | None) -> None:
    """Classic queues have none since 4.3."""
    assert consumer_timeout(queue, after) == timeout
