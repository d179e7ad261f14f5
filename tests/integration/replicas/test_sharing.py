"""Which agent of a group runs which link: evenly many, and those of one that is gone are taken over."""

from __future__ import annotations

import signal
import time

from tests.integration.federation.conftest import AgentOf
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

COUNT = 10
TAKEN_OVER = 10.0  # five are promised; other tests have the cores, too


def test_links_are_shared_evenly_again_when_agents_come_and_go(agent_of: AgentOf, here: Site, there: Site) -> None:
    first, second, third = agents = replicas(agent_of, here, federated(here, there, COUNT), 3)
    first.start()
    wait_shared([first], COUNT)
    second.start()
    wait_shared([first, second], COUNT)
    before = run_by(first), run_by(second)
    third.start()
    wait_shared(agents, COUNT)
    assert loads(agents) in ([4, 3, 3], [3, 4, 3], [3, 3, 4])
    assert run_by(first) <= before[0] or stood_still(agents)
    assert run_by(second) <= before[1] or stood_still(agents), "no link moves between agents that stay"
    before = run_by(first), run_by(second)
    third.terminate()
    wait_shared([first, second], COUNT)
    assert before[0] <= run_by(first) or stood_still(agents)
    assert before[1] <= run_by(second) or stood_still(agents)


def test_each_agent_shows_who_runs_a_link(agent_of: AgentOf, here: Site, there: Site) -> None:
    agents = replicas(agent_of, here, federated(here, there, 4), 2)
    for agent in agents:
        agent.start()
    wait_shared(agents, 4)

    def agreed() -> bool:
        first, second = (links(agent) for agent in agents)
        return all(
            first[name]["owner"] == second[name]["owner"]
            and {first[name]["status"], second[name]["status"]} == {"running", "standby"}
            for name in first
        )

    eventually(agreed, what="both show the same")

    def owners() -> list[str]:
        return sorted(str(link["owner"]) for link in links(agents[0]).values())

    eventually(lambda: owners() == ["a", "a", "b", "b"], what="each has its share")


def test_a_killed_agents_links_run_elsewhere_soon(agent_of: AgentOf, here: Site, there: Site) -> None:
    first, second = agents = replicas(agent_of, here, shoveled(here, there, 6), 2)
    for agent in agents:
        agent.start()

    def attempt() -> float:
        wait_shared(agents, 6)
        second.kill()
        begun = time.monotonic()
        wait_all_run([first], 6)
        took = time.monotonic() - begun
        second.start()
        return took

    holds_within(TAKEN_OVER, attempt)


def test_a_frozen_agents_links_run_elsewhere_soon_and_it_does_no_harm_later(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    section = federated(here, there, 4) | shoveled(here, there, 4)
    first, second = agents = replicas(agent_of, here, section, 2)
    for agent in agents:
        agent.start()
    wait_shared(agents, 8)
    time.sleep(5)  # links that ran before the other came have connected again by now
    second.signal(signal.SIGSTOP)
    try:
        wait_all_run([first], 8)
        bodies = numbered(1000)
        for number in range(4):
            there.publish(bodies, f"src{number}", exchange="")
    finally:
        second.signal(signal.SIGCONT)
    for number in range(4):
        assert here.take(1000, queue=f"dest{number}") == bodies
    wait_shared(agents, 8)
    second.wait_logged(STANDSTILL)
    why = "the agent stood still for so long that another agent"
    eventually(lambda: why in second.log.read_text(), what="its links say so")
    blamed = second.log.read_text()
    assert "heartbeats missed" not in blamed, "and blame no broker"


def test_an_agent_that_stops_hands_over_without_duplicates(agent_of: AgentOf, here: Site, there: Site) -> None:
    first, second = agents = replicas(agent_of, here, shoveled(here, there, 4), 2)
    for agent in agents:
        agent.start()
    wait_shared(agents, 4)
    for number in range(4):
        there.publish(numbered(1_000), f"src{number}", exchange="")
    second.terminate()
    wait_all_run([first], 4)
    for number in range(4):
        assert here.take(1_000, queue=f"dest{number}") == numbered(1_000)
