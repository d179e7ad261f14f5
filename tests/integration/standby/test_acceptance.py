"""A compressed hour of a standby with faults on its way, and what became of every message after a promotion."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.integration.standby.crowd import Accounted, Crowd
from tests.integration.standby.scene import VHOST, StandbyScene
from tests.lab.node import Node
from tests.lab.proxy import Proxy

HURRIED: Final = "tests.integration.standby.hurried"
SET_TICK: Final = "application:set_env(rabbit, quorum_tick_interval, 1000)."
UNSET_TICK: Final = "application:unset_env(rabbit, quorum_tick_interval)."
SILENT_FOR: Final = 6.0
SWITCHED_WITHIN: Final = 200.0
LAG: Final = 10.0
REPEATED_SINCE: Final = 30 + 14 * 6.0
"""`after`, and 14 times what figures are late: docs/decisions/0068-standby-trim.md"""


class Hour:
    """A standby whose agent reaches its source through a network that may be bad; users of the source have another."""

    def __init__(self, standby: StandbyScene, to_source: Proxy, to_dying: Proxy) -> None:
        self.standby = standby
        self.to_source = to_source
        self._to_dying = to_dying
        self.crowd = Crowd(standby.source, to_dying)

    def begin(self) -> None:
        standby, uri = self.standby, self.standby.source_node.uri("", port=self.to_source.port)
        standby.source_node.admin.vhost(VHOST)
        self.crowd.build()
        standby.write({"uri": uri[: -len("/")], "probe": 1, "reconnect-delay": 1}, trim={"after": "5m"})
        self.start_agent()
        standby.wait_in_step()
        self.crowd.start()

    def start_agent(self) -> None:
        self.standby.agent.start(HURRIED)

    def silence(self) -> None:
        self.to_source.blackhole()
        time.sleep(SILENT_FOR)
        self.to_source.restore()

    def kill_agent(self) -> None:
        self.standby.agent.kill()
        time.sleep(1)
        self.start_agent()

    def lasts(self, seconds: float, *faults: Callable[[], object]) -> None:
        """Faults come one after another in the first half of it; consumers die all the time."""
        begins, waiting = time.monotonic(), list(faults)
        while (passed := time.monotonic() - begins) < seconds:
            if waiting and passed > seconds / 2 * (1 - len(waiting) / (len(faults) + 1)):
                waiting.pop(0)()
            time.sleep(4)
            self._to_dying.cut()

    def account(self, node: Node) -> Accounted:
        """By what is in the queues there."""
        site = self.standby.here if node is self.standby.node else self.standby.source
        there = {name: [int(body) for body in site.take(0, queue=name)] for name in self.crowd.fates}
        return self.crowd.account(there)


@pytest.fixture
def hour(standby: StandbyScene, proxy_to: Callable[[Node | int], Proxy]) -> Iterator[Hour]:
    """Brokers of this test's own, whose quorum queues count each second, as the others do."""
    nodes = standby.source_node, standby.node
    for node in nodes:
        node.eval(SET_TICK)
    found = Hour(standby, proxy_to(standby.source_node), proxy_to(standby.source_node))
    yield found
    found.crowd.lose_source()
    for node in nodes:
        if node.alive:
            node.eval(UNSET_TICK)


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_switchover_after_an_hour_of_faults_loses_and_repeats_nothing(hour: Hour) -> None:
    standby = hour.standby
    hour.begin()
    hour.lasts(70, hour.to_source.cut, hour.kill_agent, hour.silence)
    hour.crowd.stop()
    standby.wait_in_step()
    done = standby.run("promote", "-c", "agent.yaml", "--switchover", deadline=SWITCHED_WITHIN)
    assert (done["promoted"], done["inexact"], done["problems"]) == (True, {}, [])
    there, here = (hour.account(node) for node in (standby.source_node, standby.node))
    sys.stdout.write(f"switchover: {here}\n")
    assert there.here == 0
    assert (here.lost, here.repeated) == ({}, {})
    reverse(standby)


def reverse(standby: StandbyScene) -> None:
    """The former source follows: what is published at the former standby is there, too."""
    assert standby.agent.terminate() == 0
    command = ("standby", "reverse", "-c", "agent.yaml", "--write", "reversed.yaml")
    ran = standby.lab.agents.run(command, cwd=standby.agent.directory, environment={}, deadline=30)
    assert ran.status == 0, ran
    standby.agent.write_text((standby.agent.directory / "reversed.yaml").read_text()).start(HURRIED)
    standby.wait_in_step()
    assert standby.here.publish(["1", "2", "3"], exchange="tasks", key="a") == 3
    waiting = [name for name, (there, here) in standby.depths().items() if there]
    standby.wait_depths(**{name: (3, 3) if name in waiting else (0, 0) for name in standby.depths()})


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_failover_after_an_hour_of_faults_lacks_little_and_repeats_what_was_consumed_of_late(hour: Hour) -> None:
    standby = hour.standby
    hour.begin()
    hour.lasts(130, hour.to_source.cut, hour.kill_agent, hour.silence)
    doubted = {each["queue"] for each in standby.status()["queues"] if each["doubts"]}
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
    sys.stdout.write(f"the oldest that is lost: {killed - late:.1f} s; that is repeated: {killed - early:.1f} s\n")
    assert killed - late < LAG
    assert killed - early < REPEATED_SINCE
    assert repeated <= done["repeats_at_most"]
    assert repeated < here.consumed / 2
