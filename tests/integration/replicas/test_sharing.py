"""Which agent of a group runs which link: evenly many, and those of one that is gone are taken over."""

from __future__ import annotations

import signal
import time

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.replicas.group import (
    STANDSTILL,
    federated,
    links,
    loads,
    replicas,
    run_by,
    shoveled,
    stood_still,
    wait_all_run,
    wait_shared,
)
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually, holds_within

COUNT = 7
TAKEN_OVER = 10.0  # five are promised; other tests have the cores, too


def test_links_are_shared_evenly_again_when_agents_come_and_go(agent_of: AgentOf, here: Site, there: Site) -> None:
    """And each agent shows who runs which."""
    first, second, third = agents = replicas(agent_of, here, federated(here, there, COUNT), 3)
    first.start()
    wait_shared([first], COUNT)
    second.start()
    wait_shared([first, second], COUNT)
    eventually(lambda: agreed(first, second), what="both show the same")
    before = run_by(first), run_by(second)
    third.start()
    wait_shared(agents, COUNT)
    assert sorted(loads(agents)) == [2, 2, 3]
    assert run_by(first) <= before[0] or stood_still(agents)
    assert run_by(second) <= before[1] or stood_still(agents), "no link moves between agents that stay"
    before = run_by(first), run_by(second)
    third.terminate()
    wait_shared([first, second], COUNT)
    assert before[0] <= run_by(first) or stood_still(agents)
    assert before[1] <= run_by(second) or stood_still(agents)


def agreed(first: Agent, second: Agent) -> bool:
    """Each of the links runs at one of them and waits at the other, both name the same owner, and both have a share."""
    ours, theirs = links(first), links(second)
    if ours.keys() != theirs.keys():
        return False
    owners = sorted(str(link["owner"]) for link in ours.values())
    return owners in (["a"] * 4 + ["b"] * 3, ["a"] * 3 + ["b"] * 4) and all(
        ours[name]["owner"] == theirs[name]["owner"]
        and {ours[name]["status"], theirs[name]["status"]} == {"running", "standby"}
        for name in ours
    )


@pytest.mark.timeout(600)
def test_links_of_an_agent_that_stops_dies_or_stands_still_run_elsewhere_soon(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """One that stops hands over without duplicates, and one that stood still does no harm later."""
    section = federated(here, there, 4) | shoveled(here, there, 4)
    first, second = agents = replicas(agent_of, here, section, 2)
    for agent in agents:
        agent.start()
    wait_shared(agents, 8)
    for number in range(4):
        there.publish(numbered(1_000), f"src{number}", exchange="")
    second.terminate()
    wait_all_run([first], 8)
    for number in range(4):
        assert here.take(1_000, queue=f"dest{number}") == numbered(1_000)
    second.start()

    def killed() -> float:
        wait_shared(agents, 8)
        second.kill()
        begun = time.monotonic()
        wait_all_run([first], 8)
        took = time.monotonic() - begun
        second.start()
        return took

    holds_within(TAKEN_OVER, killed)
    wait_shared(agents, 8)
    time.sleep(5)  # links that ran before the other came have connected again by now
    since, count = second.log.stat().st_size, len(second.logged(STANDSTILL))
    second.signal(signal.SIGSTOP)
    try:
        wait_all_run([first], 8)
        for number in range(4):
            there.publish(numbered(200), f"src{number}", exchange="")
    finally:
        second.signal(signal.SIGCONT)
    for number in range(4):
        assert here.take(200, queue=f"dest{number}") == numbered(200)
    wait_shared(agents, 8)
    second.wait_logged(STANDSTILL, count + 1)
    why = "the agent stood still for so long that another agent"

    def said() -> str:
        return second.log.read_bytes()[since:].decode()

    eventually(lambda: why in said(), what="its links say so")
    assert "heartbeats missed" not in said(), "and blame no broker"
