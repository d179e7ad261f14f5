"""A failover after a compressed hour with faults, and what became of every message."""

from __future__ import annotations

import sys
import time
from typing import Final

import pytest

from tests.integration.standby.hour import Hour
from tests.integration.standby.scene import StandbyScene
from tests.lab.waiting import DEADLINE, eventually

LAG: Final = 45.0
"""A link follows within a second; an agent or a broker that gets no CPU, when it does again."""
PROVEN: Final = 3
"""Queues of which nothing was in doubt for long enough, once the faults were over."""
WITH_FAULTS: Final = 60.0
WITHOUT: Final = 120.0
LOOKS: Final = 12
"""In this time. After a list that came too late all are in doubt, for longer than it takes to the next look."""
REPEATED_SINCE: Final = 30 + 14 * 6.0 + 40
"""`after`, 14 times what figures are late (docs/decisions/0068-standby-trim.md), and room for a slow machine: less than
the whole of it. It holds for half of the queues at least: others aren't seen empty for as long as chance has it."""


def in_doubt(standby: StandbyScene) -> set[str]:
    found = eventually(standby.status, what="the agent answers")
    return {each["queue"] for each in found["queues"] if each["doubts"]}


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_failover_after_an_hour_of_faults_lacks_little_and_repeats_what_was_consumed_of_late(hour: Hour) -> None:
    standby = hour.standby
    hour.begin()
    hour.lasts(WITH_FAULTS, hour.kill_agent, hour.to_source.cut, hour.silence)
    looked = time.monotonic()
    fates, calm_since = hour.crowd.fates, dict.fromkeys(hour.crowd.fates, looked)

    def proven() -> list[str]:
        nonlocal looked
        hour.lasts(WITHOUT / LOOKS)
        looked = time.monotonic()
        calm_since.update(dict.fromkeys(in_doubt(standby), looked))
        return [name for name, since in calm_since.items() if looked - since >= WITHOUT and fates[name].consumed]

    undoubted = eventually(lambda: found if len(found := proven()) >= PROVEN else [], 4 * DEADLINE, what="it is proven")
    standby.source_node.kill()
    killed = time.monotonic()
    hour.crowd.lose_source()
    done = standby.run("promote", "-c", "agent.yaml", "--failover")
    assert done["promoted"]
    here = hour.account(standby.node)
    repeated = sum(map(len, here.repeated.values()))
    again = {name: here.repeated.get(name, []) for name in undoubted}
    sys.stdout.write(
        f"failover: {here}; not in doubt {undoubted}; repeated of these "
        f"{sum(map(len, again.values())):,}; said: missing {done['missing']}, {done['repeats_at_most']:,} may repeat\n"
    )
    late = min((hour.crowd.published[each] for numbers in here.lost.values() for each in numbers), default=killed)
    ages = sorted(
        looked - min((fates[name].consumed.get(each, killed) for each in numbers), default=killed)
        for name, numbers in again.items()
    )
    shown = ", ".join(f"{each:.0f}" for each in ages)
    sys.stdout.write(
        f"the oldest that is lost: {killed - late:.1f} s; the oldest repeats at the last look: {shown} s\n"
    )
    assert killed - late < LAG
    assert ages[len(ages) // 2] < REPEATED_SINCE
    assert repeated <= done["repeats_at_most"]
    assert repeated < here.consumed * 2 / 3
