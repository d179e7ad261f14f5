"""An agent of a group that is cut off from a broker: another one goes on with its links."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.replicas.group import (
    federated,
    links,
    replicas,
    run_by,
    shoveled,
    stood_still,
    wait_all_run,
    wait_shared,
)
from tests.integration.shovels.shoveling import ask
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

STOOD_STILL = 3.0  # longer than an agent with company may

ProxyTo = Callable[[Node | int], Proxy]


def test_from_the_downstream(agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo) -> None:
    """A pause that was asked of one that had just been cut off isn't lost: it paused its link, which another agent ran
    by the time that it was heard again."""
    proxy = proxy_to(here.node)
    section = shoveled(here, there, 4)
    [first] = replicas(agent_of, here, section, 1)
    [second] = replicas(agent_of, here, section, 1, uri=here.node.uri(port=proxy.port))
    for agent in (first, second):
        agent.start()
    wait_shared([first, second], 4)
    proxy.refuse()
    proxy.blackhole()
    wait_all_run([first], 4)
    assert not run_by(second) or stood_still([second]), "what another one runs it no longer runs"
    for number in range(4):
        there.publish(numbered(100), f"src{number}", exchange="")
        assert here.take(100, queue=f"dest{number}") == numbered(100)
    proxy.restore()
    proxy.accept()
    wait_shared([first, second], 4)

    mine = min(run_by(second))
    link = links(second)[mine]
    proxy.blackhole()
    ask(second, f"/api/links/{link['id']}/pause", "POST")
    eventually(lambda: len(run_by(first)) == 4, what="another agent took the link over")
    proxy.restore()  # soon: such a request is kept for ten seconds
    proxy.cut()

    def statuses() -> list[str]:
        return sorted(links(each).get(mine, {}).get("status", "") for each in (first, second))

    eventually(lambda: statuses() == ["paused", "standby"], what="it is paused where it runs")


@pytest.mark.thorough
def test_from_an_upstream_that_another_one_reaches(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    proxy = proxy_to(there.node)
    section = federated(here, there, 4)
    [first] = replicas(agent_of, here, section, 1)
    cut_off = {**section, "upstreams": {"origin": {"uri": there.node.uri(there.vhost, port=proxy.port)}}}
    [second] = replicas(agent_of, here, cut_off, 1)
    for agent in (first, second):
        agent.start()
    wait_shared([first, second], 4)
    proxy.refuse()
    proxy.cut()
    wait_all_run([first], 4)


def test_one_that_is_alone_goes_on_without_its_lease(
    agent_of: AgentOf, here: Site, there: Site, site_on: Callable[[Node], Site], proxy_to: ProxyTo
) -> None:
    """A shovel between two other brokers doesn't need the downstream. Its connections are kept over a short standstill,
    too: no broker has given its messages to anybody else."""
    proxy = proxy_to(here.node)
    elsewhere = site_on(there.node)
    [agent] = replicas(agent_of, here, shoveled(elsewhere, there, 1), 1, uri=here.node.uri(port=proxy.port))
    agent.start()
    wait_shared([agent], 1)
    proxy.refuse()
    proxy.cut()
    there.publish(numbered(100), "src0", exchange="")
    assert elsewhere.take(100, queue="dest0") == numbered(100)
    eventually(lambda: "no leases of links" in agent.log.read_text(), what="it says so")
    agent.signal(signal.SIGSTOP)
    time.sleep(STOOD_STILL)
    agent.signal(signal.SIGCONT)
    there.publish(numbered(100), "src0", exchange="")
    assert elsewhere.take(100, queue="dest0") == numbered(100)
    assert "other agents of the group may" not in agent.log.read_text()
    [link] = links(agent).values()
    assert (link["status"], link["reconnects"]) == ("running", 0)
    proxy.accept()
