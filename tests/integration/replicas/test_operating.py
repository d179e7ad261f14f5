"""What operators do with a group of agents: pause, restart, upgrade, change definitions, forget a permission."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.replicas.group import (
    federated,
    links,
    replicas,
    run_by,
    shoveled,
    wait_all_run,
    wait_shared,
)
from tests.integration.shovels.shoveling import ask
from tests.lab.node import Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually


def test_any_agent_pauses_and_resumes_a_link_and_it_stays_paused(agent_of: AgentOf, here: Site, there: Site) -> None:
    first, second = agents = replicas(agent_of, here, shoveled(here, there, 4), 2)
    for agent in agents:
        agent.start()
    wait_shared(agents, 4)
    mine = min(run_by(second))
    link = links(first)[mine]
    ask(first, f"/api/links/{link['id']}/pause", "POST")
    eventually(lambda: links(second)[mine]["status"] == "paused", what="the one that runs it has paused it")
    second.kill()
    eventually(lambda: links(first)[mine]["status"] == "paused", what="paused also where it is taken over")
    first.kill()
    first.start()
    eventually(lambda: links(first).get(mine, {}).get("status") == "paused", what="paused also after a restart")
    ask(first, f"/api/links/{link['id']}/resume", "POST")
    wait_all_run([first], 4)
    first.kill()
    first.start()
    wait_all_run([first], 4)


def test_a_shovel_that_has_finished_is_not_run_again_where_it_is_taken_over(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    agents = replicas(agent_of, here, shoveled(here, there, 1, src_delete_after=5), 2)
    for agent in agents:
        agent.start()

    def one_waits_for_the_other() -> Sequence[Agent]:
        by_status = {links(agent).get("move0", {}).get("status"): agent for agent in agents}
        return [by_status["running"], by_status["standby"]] if by_status.keys() == {"running", "standby"} else []

    runs, waits = eventually(one_waits_for_the_other, what="one runs it, and the other waits")
    there.publish(numbered(8), "src0", exchange="")
    eventually(lambda: links(runs)["move0"]["status"] == "terminated", what="it has finished")
    runs.kill()
    eventually(lambda: links(waits)["move0"]["status"] == "terminated", what="and has where it is taken over")
    waits.kill()
    waits.start()
    eventually(lambda: links(waits).get("move0", {}).get("status") == "terminated", what="and after a restart")
    there.wait_depth(3, "src0")
    ask(waits, f"/api/links/{links(waits)['move0']['id']}/restart", "POST")
    assert here.take(8, queue="dest0") == numbered(8)


@pytest.mark.thorough
def test_a_rolling_upgrade_loses_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    agents = replicas(agent_of, here, shoveled(here, there, 3), 3)
    for agent in agents:
        agent.start()
    wait_shared(agents, 3)
    count = 0
    for agent in agents:
        for number in range(3):
            there.publish(numbered(500, start=count), f"src{number}", exchange="")
        count += 500
        agent.terminate()
        agent.start()
        wait_shared(agents, 3)
    for number in range(3):
        taken = here.take(count, queue=f"dest{number}")
        assert sorted(taken) == sorted(numbered(count)), "nothing is lost, and nothing comes twice"


def test_a_link_that_is_no_longer_defined_leaves_nothing_although_its_agent_dies(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    section = federated(here, there, 4)
    agents = replicas(agent_of, here, section, 2)
    for agent in agents:
        agent.cleanup_after = 4
        agent.write({here.vhost: section}, agent=agent.settings(name="n", group=here.vhost)).start()
    wait_shared(agents, 4)
    for agent in agents:
        without = {**section, "policies": {}}
        agent.write({here.vhost: without}, agent=agent.settings(name="n", group=here.vhost))
    eventually(lambda: _are(agents[0], "removing") and _are(agents[1], "removing"), what="both have read it")
    agents[1].kill()
    there.wait_clean()
    eventually(lambda: not links(agents[0]), what="no link is left")


def _are(agent: Agent, status: str) -> bool:
    found = links(agent)
    return bool(found) and all(link["status"] == status for link in found.values())


def test_agents_with_different_links_run_their_own(agent_of: AgentOf, here: Site, there: Site) -> None:
    """The group's name is the cluster's unless another one is given, so they may not even know of each other."""
    [first] = replicas(agent_of, here, shoveled(here, there, 3), 1)
    second = agent_of(here.node)
    first.start()
    wait_shared([first], 3)
    other = {"shovels": {"other": shoveled(here, there, 4)["shovels"]["move3"]}}
    second.write({here.vhost: other}, agent=second.settings(name="z", group=here.vhost)).start()
    wait_all_run([first, second], 4)
    assert run_by(second) == {"other"}


def test_without_the_permission_for_leases_it_runs_all_and_says_so(agent_of: AgentOf, here: Site, there: Site) -> None:
    user, password = f"{here.vhost}-user", "secret-of-the-user"
    admin = here.node.admin
    admin.user(user, password)
    admin.permissions("/", user, configure="^$", write="^$", read="^$")
    admin.permissions(here.vhost, user)
    uri = here.node.uri(user=user, password=password)
    section = federated(here, there, 2) | shoveled(here, there, 2)
    [agent] = replicas(agent_of, here, section, 1, uri=uri)
    try:
        agent.start()
        wait_all_run([agent], 4)
        [said] = agent.wait_logged("links can't be shared with other agents, and this one runs all of them")
        assert "grant configure, write and read on '^federation-agent: ' in vhost '/'" in said["reason"]
        assert password not in agent.log.read_text()
    finally:
        admin.delete("users", user)


@pytest.mark.thorough
def test_what_is_paused_stays_paused_when_the_downstream_restarts(
    agent_of: AgentOf, borrowed: Borrowed, site_on: Callable[[Node], Site], there: Site
) -> None:
    node = borrowed()
    here = site_on(node)
    agents = replicas(agent_of, here, federated(here, there, 2), 2)
    for agent in agents:
        agent.start()
    wait_shared(agents, 2)
    name, link = next(iter(links(agents[0]).items()))
    ask(agents[0], f"/api/links/{link['id']}/pause", "POST")
    eventually(lambda: _statuses(agents, name) == {"paused", "standby"}, what="it is paused")
    node.restart()
    eventually(lambda: _statuses(agents, name) == {"paused", "standby"}, what="it is paused again")
    wait_all_run(agents, 1)
    there.publish(["m"], exchange=name)
    assert here.take(1, queue=f"q{name.removeprefix('fed.')}", deadline=2) == []
    ask(agents[1], f"/api/links/{link['id']}/resume", "POST")
    assert here.take(1, queue=f"q{name.removeprefix('fed.')}") == ["m"]


def _statuses(agents: Sequence[Agent], name: str) -> set[str]:
    return {str(links(agent).get(name, {}).get("status")) for agent in agents}
