"""What stands upstream is made anew while messages are published: none of them may fall between old and new."""

from __future__ import annotations

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated, stream
from tests.integration.federation.test_api import wait_noticing
from tests.integration.federation.test_failures import ProxyTo, link
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

PURPOSE = {"x-internal-purpose": "federation"}


def queue_of(site: Site) -> str:
    [queue] = [name for name in site.links_objects() if not name.endswith((" A", " B"))]
    return queue


def check_all_came(here: Site, published: list[str]) -> None:
    assert here.take(len(published)) == published


def wait_for_runs(agent: Agent, site: Site, count: int) -> None:
    eventually(lambda: agent.history(*link(site)).count("running") == count, what=f"it runs for the {count}th time")


def test_changed_definitions_and_a_renamed_upstream_leave_no_gap(agent_of: AgentOf, here: Site, there: Site) -> None:
    """By its id the renamed one is another link, over the same queue; also with another user."""
    here.exchange().queue("k")
    admin, user = there.node.admin, f"other of {there.vhost}"
    admin.user(user, "guest", "administrator")
    admin.permissions(there.vhost, user)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    queue = queue_of(there)
    with stream(there) as published:
        for hops in (2, 3, 4):
            agent.write({here.vhost: federated(there, **{"max-hops": hops})}).reload()
            wait_for_runs(agent, here, hops)
    check_all_came(here, published)
    assert there.links_objects() == [queue, f"{queue} B"]

    renamed = federated(there)
    with stream(there) as published:
        for name, uri in (("renamed", there.uri), ("again", there.node.uri(there.vhost, user, "guest"))):
            renamed["upstreams"] = {name: {"uri": uri}}
            agent.write({here.vhost: renamed}).reload()
            agent.wait_for("running", link(here, name))
    came = here.take(len(published))
    assert sorted(set(came)) == published


def test_a_rebuilding_that_was_cut_short_keeps_the_one_that_serves(agent_of: AgentOf, here: Site, there: Site) -> None:
    """The agent died while B, say, was whole already, or A was not yet: either may be the one that counts."""
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    queue, admin = queue_of(there), there.node.admin
    for whole, torn, kind in (("A", "B", "fanout"), ("B", "A", "fanout"), ("B", "A", "topic")):
        assert agent.terminate() == 0
        for letter in (torn, whole):
            name = f"{queue} {letter}"
            if name in there.links_objects():
                admin.delete("exchanges", there.vhost, name)
            of_kind = kind if letter == whole else "fanout"  # what is whole may be of an older definition
            admin.exchange(there.vhost, name, of_kind, internal=True, auto_delete=True, arguments=PURPOSE)
            admin.bind(there.vhost, name, queue, "#")
        for key in ("k", "unbound meanwhile"):
            admin.bind(there.vhost, X, f"{queue} {whole}", key, to_exchange=True)
        for each in there.federated_bindings():
            if each["destination"] == f"{queue} {torn}":
                path = ("bindings", there.vhost, "e", X, "e", f"{queue} {torn}", each["properties_key"])
                admin.delete(*path)
        ran = agent.history(*link(here)).count("running")
        with stream(there) as published:
            agent.start()
            wait_for_runs(agent, here, ran + 1)
        check_all_came(here, published)
        assert len(there.links_objects()) == 2
        there.wait_bound("k")


def test_another_broker_of_the_list_has_bindings_of_its_own(
    agent_of: AgentOf, here: Site, there: Site, borrowed: Borrowed, proxy_to: ProxyTo
) -> None:
    """What was bound on the one tells nothing of the other, though both know the same names."""
    here.exchange().queue("k")
    third = borrowed()
    third.admin.vhost(there.vhost)
    elsewhere = Site(third, there.vhost)
    ways = {site.node.cluster_name: proxy_to(site.node) for site in (there, elsewhere)}
    definition = federated(there, **{"reconnect-delay": 0.2})
    definition["upstreams"]["origin"]["uri"] = [there.node.uri(there.vhost, port=way.port) for way in ways.values()]

    def lead_to(site: Site) -> None:
        for name, way in ways.items():
            if name != site.node.cluster_name:
                way.refuse()
                way.cut()
        ways[site.node.cluster_name].accept()

    lead_to(there)
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    there.wait_bound("k")
    lead_to(elsewhere)
    elsewhere.wait_bound("k")
    here.bind("l")
    here.unbind("k")
    elsewhere.wait_bound("l")
    lead_to(there)
    there.wait_bound("l")
    assert agent.terminate() == 0
    third.admin.delete_vhost(there.vhost)


def test_a_broker_with_a_copy_of_the_definitions_is_not_taken_for_the_one_before(
    agent_of: AgentOf, here: Site, there: Site, borrowed: Borrowed
) -> None:
    """The upstream's address changes to that of a copy: cluster, vhost, exchange and all that the link had built have
    the same names there, but an older binding."""
    here.exchange().queue("k")
    third = borrowed()
    third.admin.vhost(there.vhost)
    copy, name = Site(third, there.vhost), third.cluster_name
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    queue = queue_of(there)
    wait_noticing(agent)
    try:
        third.admin.put("cluster-name", body={"name": there.node.cluster_name})
        copy.exchange()
        third.admin.queue(copy.vhost, queue)
        [canary] = (each["name"] for each in there.canaries())
        for exchange, arguments in ((f"{queue} A", PURPOSE), (canary, {})):
            third.admin.exchange(copy.vhost, exchange, "fanout", internal=True, auto_delete=True, arguments=arguments)
        third.admin.bind(copy.vhost, canary, X, to_exchange=True)
        third.admin.bind(copy.vhost, f"{queue} A", queue, "#")
        third.admin.bind(copy.vhost, X, f"{queue} A", "older", to_exchange=True)
        agent.write({here.vhost: federated(copy)}).reload()
        copy.wait_bound("k")
        copy.publish(numbered(5))
        assert here.take(5) == numbered(5)
    finally:
        third.admin.put("cluster-name", body={"name": name})
        third.admin.delete_vhost(copy.vhost)
