"""Beside the native plugin: on other edges of one topology, and on the same edge one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, federated, policies
from tests.integration.federation.test_failures import link
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually


def federate_natively(site: Site, upstream: Site, **settings: object) -> None:
    admin = site.node.admin
    admin.parameter("federation-upstream", site.vhost, "origin", {"uri": upstream.uri} | settings)
    policy = policies()["federate"]
    admin.policy(site.vhost, "federate", policy["pattern"], definition=policy["definition"], apply_to="exchanges")


def bound_count(site: Site) -> int:
    return len(site.federated_bindings())


def test_a_ring_of_native_and_agent_links(agent_of: AgentOf, site_on: SiteOn, native_broker: Node, here: Site) -> None:
    """here ← second ← first ← here: bindings and messages pass through both kinds of links."""
    first, second = site_on(native_broker), site_on(native_broker)
    for site in (here, first, second):
        site.exchange().queue("k")
    federate_natively(first, here, **{"max-hops": 2})
    federate_natively(second, first, **{"max-hops": 2})
    agent = agent_of(here.node).write({here.vhost: federated(second, **{"max-hops": 2})}).start()
    agent.wait_for("running", link(here))
    for site in (here, first, second):
        eventually(lambda site=site: bound_count(site) == 2, what="bindings have travelled")  # type: ignore[misc]
    internal = [
        each for each in second.node.admin.get("exchanges", second.vhost) if each["name"].endswith((" A", " B"))
    ]
    assert [each["type"] for each in internal] == ["x-federation-upstream"]
    for site in (here, first, second):
        site.publish(bodies := numbered(20))
        for each in (here, first, second):
            assert each.take(20) == bodies


def test_a_pair_of_a_native_link_and_an_agents(
    agent_of: AgentOf, site_on: SiteOn, native_broker: Node, here: Site
) -> None:
    native = site_on(native_broker)
    for site in (here, native):
        site.exchange().queue("k")
    federate_natively(native, here)
    agent = agent_of(here.node).write({here.vhost: federated(native)}).start()
    agent.wait_for("running", link(here))
    here.wait_bound("k")
    native.wait_bound("k")
    for site in (here, native):
        site.publish(bodies := numbered(20))
        for each in (here, native):
            assert each.take(20) == bodies


@pytest.mark.thorough
def test_a_plugin_that_tells_nothing_is_known_by_its_consumer(
    agent_of: AgentOf, borrowed: Borrowed, there: Site
) -> None:
    """Without the plugin's management extension, and with a backlog when it goes."""
    plugins = tuple(
        each for each in NATIVE_PLUGINS if not each.endswith(("federation_management", "_shovel_management"))
    )
    node = borrowed(plugins=plugins)
    here = Site(node, "/")
    here.exchange().queue("k")
    federate_natively(here, there)
    there.wait_bound("k")
    agent = agent_of(node).write({"/": federated(there)}).start()
    agent.wait_for("standby", link(here))
    assert "consumer" in agent.links()[link(here)]["error"]
    node.run("rabbitmq-plugins", "disable", "rabbitmq_federation")
    agent.wait_for("running", link(here))
    there.publish(numbered(10))
    assert times(here.take(10)) == dict.fromkeys(numbered(10), 1)
    assert agent.history(*link(here))[0] == "standby"
    assert len(agent.history(*link(here))) <= 4  # it looked, and didn't try


def test_a_link_that_stood_aside_takes_nothing_along(
    agent_of: AgentOf, site_on: SiteOn, native_broker: Node, there: Site
) -> None:
    """Its definition is taken away while the plugin serves: the queue is the plugin's."""
    here = site_on(native_broker)
    here.exchange().queue("k")
    federate_natively(here, there)
    there.wait_bound("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("standby", link(here))
    agent.write({})
    eventually(lambda: agent.history(*link(here))[-1] == "stopping", what="the link is gone")
    assert agent.terminate() == 0
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)


def test_an_old_upstream_that_lets_in_no_more_is_served_by_a_type_that_it_knows(
    agent_of: AgentOf, site_on: SiteOn, native_broker: Node, here: Site, name: Callable[[str], str]
) -> None:
    """Its plugin's exchange type would be tried on a third connection, when the link's own two stand."""
    there, user = site_on(native_broker), name("few")
    here.exchange().queue("k")
    admin = there.node.admin
    admin.user(user, "secret")
    admin.permissions(there.vhost, user)
    admin.put("user-limits", user, "max-connections", body={"value": 2})
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, user, "secret")
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    assert agent.history(*link(here)) == ["running"]
    [internal] = [each for each in admin.get("exchanges", there.vhost) if each["name"].endswith((" A", " B"))]
    assert internal["type"] == "fanout"
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)
