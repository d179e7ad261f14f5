"""The downstream's cluster gets another name, or the agent another cluster."""

import json
import urllib.request

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import BY_EVENTS, Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_failures import link
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

RENAMED = "the downstream's cluster name is another"
LEFT = "left under the downstream's former name"
Y = "fed.y"


def queue_of(cluster: str, here: Site, exchange: str) -> str:
    return f"federation: {exchange} -> {cluster}:{here.vhost}:{exchange}"


def names(cluster: str, here: Site) -> list[str]:
    return sorted(name for x in (X, Y) for name in (queue_of(cluster, here, x), f"{queue_of(cluster, here, x)} A"))


def ask(agent: Agent, method: str, path: str) -> object:
    request = urllib.request.Request(f"http://127.0.0.1:{agent.port}/api/links{path}", method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_links_follow_a_new_name_and_leave_only_messages_under_the_former(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site
) -> None:
    here = site_on(borrowed())
    here.exchange().queue("k").exchange(Y).queue("k", exchange=Y)
    node, former = here.node, here.node.cluster_name
    agent = agent_of(node).write({here.vhost: federated(there)}).start()
    agent.wait_running(2)
    assert there.links_objects() == names(former, here)
    waiting = agent.links()[here.vhost, Y, "origin"]["link"]
    ask(agent, "POST", f"/{waiting}/pause")
    agent.wait_for("paused", (here.vhost, Y, "origin"))
    kept = queue_of(former, here, Y)
    there.wait_unconsumed(kept)
    there.publish(["waits"], exchange=Y)
    try:
        node.admin.put("cluster-name", body={"name": "renamed"})
        agent.wait_logged(RENAMED)
        ask(agent, "POST", f"/{waiting}/resume")
        [left] = agent.wait_logged(LEFT)
        assert (left["link"], left["former"]) == (waiting, former)
        assert repr(kept) in left["error"]
        eventually(lambda: there.links_objects() == sorted([*names("renamed", here), kept]), what="new names, and one")
        for exchange in (X, Y):
            there.wait_bound("k", exchange=exchange)
            there.publish(bodies := numbered(10), exchange=exchange)
            assert here.take(10) == bodies
        there.wait_depth(1, kept)
    finally:
        node.admin.put("cluster-name", body={"name": former})


def test_an_agent_that_goes_to_another_cluster_leaves_the_queues_of_the_first(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start(BY_EVENTS)
    agent.wait_for("running", link(here))
    with there.node.admin.temporary_vhost(here.vhost):
        second = Site(there.node, here.vhost).exchange().queue("k")
        downstream = {"uri": second.node.uri(), "management": second.node.management_uri()}
        agent.write({here.vhost: federated(there)}, downstream=downstream).reload()
        queues = [queue_of(node.cluster_name, here, X) for node in (here.node, second.node)]
        eventually(lambda: set(queues) <= set(there.links_objects()), what="the queue of the second stands too")
        agent.wait_for("running", link(here))
        second.bind("l")
        there.wait_bound("k", "k", "l")  # by events of the second
        there.publish(["m"])
        assert second.take(1) == ["m"]
        there.wait_depth(1, queues[0])
        assert agent.terminate() == 0
