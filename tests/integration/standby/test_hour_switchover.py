"""A switchover after a compressed hour with faults, and what became of every message."""

from __future__ import annotations

import json
import sys
import time
from typing import Final

import pytest

from tests.integration.standby.hour import Hour
from tests.lab.preloaded import COMMAND

WITH_FAULTS: Final = 30.0
SWITCHED_WITHIN: Final = 300.0


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_switchover_after_an_hour_of_faults_loses_and_repeats_nothing(hour: Hour) -> None:
    """The command waits as it does for users."""
    standby = hour.standby
    hour.begin()
    hour.lasts(WITH_FAULTS, hour.to_source.cut, hour.kill_agent, hour.silence)
    hour.crowd.stop()
    standby.wait_in_step()
    ends = time.monotonic() + SWITCHED_WITHIN
    started = standby.begin_switchover(COMMAND)
    while started.poll() is None and time.monotonic() < ends:
        time.sleep(0.2)
    said = standby.switchover.read_text()
    assert started.poll() == 0, said
    done = json.loads(said[said.index("{") :])
    assert (done["promoted"], done["inexact"], done["problems"]) == (True, {}, [])
    there, here = (hour.account(node) for node in (standby.source_node, standby.node))
    sys.stdout.write(f"switchover: {here}\n")
    assert there.here == 0
    assert (here.lost, here.repeated) == ({}, {})
    standby.reverse()
    assert standby.here.publish(["1", "2", "3"], exchange="tasks", key="a") == 3
    reached = hour.crowd.reached("tasks", "a")
    standby.wait_depths(**{name: (3, 3) if name in reached else (0, 0) for name in hour.crowd.fates})
