"""A failover after a compressed hour with faults, and what became of every message."""

from __future__ import annotations

import sys
import time
from typing import Final

import pytest

from tests.integration.standby.crowd import QUEUES
from tests.integration.standby.hour import Hour
from tests.integration.standby.scene import StandbyScene

LAG: Final = 45.0
"""A link follows within a second; an agent or a broker that gets no CPU, when it does again."""
PROVEN: Final = 3
"""Queues of which nothing was in doubt once the faults were over."""
WITH_FAULTS: Final = 60.0
WITHOUT: Final = 120.0
REPEATED_SINCE: Final = 30 + 14 * 6.0 + 40
"""`after`, 14 times what figures are late (docs/decisions/0068-standby-trim.md), and room for a slow machine: less than
the whole of it."""


def in_doubt(standby: StandbyScene) -> set[str]:
    return {each["queue"] for each in standby.status()["queues"] if each["doubts"]}


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_failover_after_an_hour_of_faults_lacks_little_and_repeats_what_was_consumed_of_late(hour: Hour) -> None:
    standby = hour.standby
    hour.begin()
    hour.lasts(WITH_FAULTS, hour.kill_agent, hour.to_source.cut, hour.silence)
    looked, doubted = time.monotonic(), in_doubt(standby)
    for _ in range(3):
        hour.lasts(WITHOUT / 3)
        looked = time.monotonic()
        doubted |= in_doubt(standby)
    assert QUEUES - len(doubted) >= PROVEN
    standby.source_node.kill()
    killed = time.monotonic()
    hour.crowd.lose_source()
    done = standby.run("promote", "-c", "agent.yaml", "--failover")
    assert done["promoted"]
    here = hour.account(standby.node)
    proven = {name: numbers for name, numbers in here.repeated.items() if name not in doubted}
    repeated = sum(map(len, here.repeated.values()))
    sys.stdout.write(
        f"failover: {here}; in doubt {sorted(doubted)}; repeated of the others "
        f"{sum(map(len, proven.values())):,}; said: missing {done['missing']}, {done['repeats_at_most']:,} may repeat\n"
    )
    late = min((hour.crowd.published[each] for numbers in here.lost.values() for each in numbers), default=killed)
    early = min(
        (hour.crowd.fates[name].consumed.get(each, killed) for name, numbers in proven.items() for each in numbers),
        default=killed,
    )
    sys.stdout.write(
        f"the oldest that is lost: {killed - late:.1f} s; that is repeated: {looked - early:.1f} s, at the last look\n"
    )
    assert killed - late < LAG
    assert looked - early < REPEATED_SINCE
    assert repeated <= done["repeats_at_most"]
    assert repeated < here.consumed * 2 / 3
